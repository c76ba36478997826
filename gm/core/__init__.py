"""Guaranteed multicast as a value: views, messages and broadcasts in, effects out."""
