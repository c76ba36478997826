"""The data pipeline, and a judge of chaos runs, on Spark.

`connector` and `wire` are the data source `amqp-stream`; `command`, `jobs`, `lake` and `report` are
`warrenmq pipeline`.

`audit`: Spark over histories, the same questions as the chaos checkers ask, for files of any size:
sources -> transforms -> quality -> verdict. `schemas` holds the columns, `transforms` pure
functions from DataFrame to DataFrame, one question each, `quality` what must hold of the input
for an answer to mean anything, `judge` the steps in order and nothing else. A judge written
twice, in two ways, that must agree with itself. Nothing here imports our other packages.
"""
