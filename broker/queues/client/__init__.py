"""The client of a queue that another node may serve: remote classic, mirrored, or quorum."""
