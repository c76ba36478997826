"""Users, vhosts, permissions, parameters and limits."""
