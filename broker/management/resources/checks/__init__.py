"""Health checks: `/api/health/checks`. `stop_safety` decides what stands against a stop."""
