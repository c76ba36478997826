"""What needs no password yet: logging in, and the description of the API."""
