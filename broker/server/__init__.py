"""Sockets. Accepts AMQP clients and runs what their sessions ask for; decides nothing itself."""
