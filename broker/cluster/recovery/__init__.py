"""Losing nodes for good: what an operator is told, what is forced, what is forgotten (P8)."""
