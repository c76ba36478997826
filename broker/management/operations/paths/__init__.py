"""The path of one message, which all nodes look for."""
