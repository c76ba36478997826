"""Limits for strangers at a port: descriptors, places, logins. Pure; time is an argument."""
