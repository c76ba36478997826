"""What is the matter with a queue: one sentence, what proves it, and what helps."""
