"""Who may do what and how much: users, vhosts, permissions, parameters and limits."""
