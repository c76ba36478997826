"""Raft messages as protobuf: `convert` is written by hand, the rest generated from proto/."""
