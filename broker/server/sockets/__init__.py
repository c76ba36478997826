"""What is read from clients' sockets at a time, and what is written together."""
