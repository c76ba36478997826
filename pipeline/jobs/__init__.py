"""Each job: read, transform, check, report; nothing else."""
