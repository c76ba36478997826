"""Joining a running cluster: what a node asks first, and how a member admits it."""
