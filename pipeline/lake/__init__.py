"""A lake of Parquet files whose readers see each row once, while it grows and is compacted.

A table is a folder: data files under `COLUMN=VALUE/`, and manifests under `_spark_metadata/`. The
newest manifest names every file that belongs to the table, and replaces the one before at once.
Spark reads a table with such a folder by its manifest, so `spark.read.parquet(table)` is exact.

What holds:
1. A file is complete before a manifest names it, and is never written again.
2. A manifest is a whole: it is linked to its name, which only one writer can do.
3. A batch of a query is in the table whole or not at all, and once: the manifest has the number of
   the last batch of each query.
4. A compaction replaces files by one with the same rows in a single manifest.
5. A file that no manifest names any more stays for a time, for readers that began before.

`manifest` is pure, `table` reads and writes files, `compaction` joins small ones with Spark.
"""
