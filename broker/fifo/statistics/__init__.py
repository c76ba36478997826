"""What listings show of a queue beside its counts: worked out when somebody asks."""
