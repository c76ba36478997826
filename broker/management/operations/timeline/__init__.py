"""What happened to the cluster: each node notes what it sees, and all notes are put together."""
