"""Where histories come from: files of one run, as text or as Parquet."""
