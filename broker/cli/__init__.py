"""The command line: arguments in, exit code out. Only `server` imports the broker itself."""
