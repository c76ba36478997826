"""Faults, each with its start and its heal, and the schedule that a seed draws for a run."""
