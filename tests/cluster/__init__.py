"""Tests against real nodes."""
