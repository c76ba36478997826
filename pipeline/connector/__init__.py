"""The data source `amqp-stream`: Spark reads and writes streams of a broker, exactly.

`options`, `offsets` and `planning` decide and are pure; `columns` makes Arrow batches of messages.
`places` asks the broker where streams begin and end, `reading` reads a range of one in a task,
`messages` and `sink` publish rows, `source` is what Spark sees.

What holds:
1. The rows of a batch are the messages from its start to its end, each once: the same offsets
   give the same rows, whoever reads them, and however often.
2. An offset names the incarnation of its stream where the broker says it: a stream that was
   deleted and declared again is an error, not a jump.
3. What can't be read any more is an error that names both offsets, unless `failOnDataLoss` is
   false.
4. No offset is stored in the broker before Spark has committed it.
5. What a task writes of a batch to a stream is there whole and once, or not at all.
"""
