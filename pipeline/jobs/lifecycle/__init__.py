"""The job `lifecycle`: what a trace says of each message, and how long that took."""
