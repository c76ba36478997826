"""Checkpoints of a queue whose bodies are in its Raft log: `checkpoint` writes and reads them."""
