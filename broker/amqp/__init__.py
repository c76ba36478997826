"""AMQP 0-9-1 on the wire: bytes in, commands out, and back. Pure: no IO, clock or randomness."""
