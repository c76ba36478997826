"""`warrenmq cluster certificates`: an authority for the nodes of one cluster, and what it signs."""
