"""How commands change the catalogue: one function for each, called by the machine alone."""
