"""Commands about users, permissions, vhosts, limits and parameters."""
