"""The management page as people see it: Chromium against real nodes."""
