"""Live data: paths of the API that viewers watch, and what changes in their answers."""
