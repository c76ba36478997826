"""`warrenmq cluster`: nodes as processes of this machine, to try things and to break them."""
