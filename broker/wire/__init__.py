"""What travels between nodes: generated from proto/broker/wire by `make proto`."""
