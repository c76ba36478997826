"""What one publisher may take of a node: of its event loop, and of memory for half messages."""
