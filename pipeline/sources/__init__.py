"""Sources of histories: files of one run, as text or as Parquet."""
