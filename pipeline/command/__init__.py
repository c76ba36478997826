"""`warrenmq pipeline JOB`: options and TOML files become checked configurations, jobs run, reports.

`configuration`, `declared`, `tables` and `files` decide and need no Spark: a mistake is told before
Spark starts. `progress` shows how far a job is, `main` runs it and writes the report.
"""
