"""The process of this node and its machine: its end, its listeners, what it was started with."""
