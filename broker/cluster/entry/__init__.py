"""Into a cluster that is there: what a node asks first, and how a member lets it in."""
