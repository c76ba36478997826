"""Admission at this node's ports: the shell around `broker.doors`."""
