"""Recovery from nodes that are lost for good: advice, forcing, forgetting (P8)."""
