"""What each command does to the catalogue: one function a command, called by the machine alone."""
