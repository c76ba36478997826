"""`warrenmq cluster restart`: above `cluster`, whose nodes it restarts, and above `ctl`."""
