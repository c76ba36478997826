"""The tail of many log files: one write and one sync for all of them, and what comes of it."""
