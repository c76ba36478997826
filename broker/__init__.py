"""WarrenMQ's broker: AMQP 0-9-1 in front, one queue machine behind, Raft and RocksDB below."""
