"""Streams: the parts that decide, without input or output. Pure.

A stream is a queue of type "stream": a log that is read without being emptied. Each message gets an
offset, 0, 1, 2 ..., when the stream's group has committed it, and keeps it. Readers choose where
they begin and go at their own pace; their acknowledgements are credit and nothing else. What is old
goes by whole segments, by size and by age.

The problem: a queue keeps what was not taken; a stream keeps everything, for a hundred readers and
for days. A message that costs a microsecond to deliver costs it for each reader again.

The idea: messages are kept by the chunk, in columns. Who publishes sends a thousand messages that
are alike but for their bodies, and who reads wants them in the same order: so what they share is
said once a chunk, the bodies lie one behind the other, and a delivery is one pack of fixed pieces
around a slice of the chunk. No message is decoded between the publisher and the reader.

Here is what can be said of that without a disk, a clock or a link:

    offsets         where a consumer begins
    ages            how long an age is
    chunk           the bytes that hold messages, and what is read out of them
    columns         how messages are taken apart for a chunk
    templates       what many messages of a chunk share: exchange, routing key, properties
    bloom           which filter values a chunk may hold, told by its first bytes
    deliveries      messages of a chunk as a consumer gets them over AMQP 0-9-1

Guaranteed: a message comes out of a chunk as it went in, but for the header `x-stream-offset`,
which each delivery has of its own; a chunk in which a bit changed is found out.

Who runs a stream is `broker.queues.streams`; what group 0 knows of streams is
`broker.metadata.streams`.
"""
