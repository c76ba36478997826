"""The share of one publisher in a node's event loop, and in its memory for half-sent messages."""
