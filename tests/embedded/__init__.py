"""A broker inside another program, and the fixtures for other people's tests."""
