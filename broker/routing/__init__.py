"""Which destinations a message reaches: one matcher per exchange type, and the walk between them.

Pure and ignorant of queues: destinations are any hashable values.
"""
