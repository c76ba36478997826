"""What those who reach a port may cost: descriptors, places, logins. Pure; time is an argument."""
