"""What operators do to those who hold messages: carried out at the node of their connection."""
