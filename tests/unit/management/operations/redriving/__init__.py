"""Tests of redrives."""
