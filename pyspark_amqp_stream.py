"""PySpark imports modules named `pyspark_...`, and registers their `DefaultSource`.

One that can't be imported would keep all other data sources from being found. So where PySpark is
too old or PyArrow is missing, there is no `DefaultSource` here: `warrenmq[pipeline]` brings both.
"""

from contextlib import suppress

with suppress(ImportError):
    from pipeline.connector.source import AmqpStreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
