"""The meaning of channels: what each AMQP method does, and in which order its answers come.

The problem. A connection carries thousands of interleaved channels. Each channel promises its
client an order: methods take effect one after the other, a mandatory message is returned before it
is confirmed, consume-ok comes before the first delivery and cancel-ok after the last. But the
answers come from elsewhere, queues on other nodes and the metadata group, at their own pace.

The idea. One `Session` per connection, pure: commands from the assembler go in by the chunk,
effects for the shell and bytes for the socket come out. A question carries a token; the channel
that asked holds back its own later commands until the answer comes, other channels go on. Nothing
is done per message that can be done per chunk: publishes are gathered into one effect per channel
and queue, settles into one per consumer, confirms into one basic.ack(multiple).

The guarantee. Within a channel, effects leave in the order of the commands that caused them;
answers to one channel are written in the order the questions were asked; every sequence number of
a confirm channel is answered exactly once; delivery tags are 1, 2, 3 ... without a gap; whatever
a channel held when it ended is released at every queue it consumed from.

The non-guarantee. Nothing here is durable, and nothing here knows whether a queue is alive: a
confirm says what the queue's handle said. Two channels of one connection have no order.

Where what is: `session` dispatches, `channel` holds the state of one channel, one file per AMQP
class has the methods (`basic_publish`, `basic_consume`, `basic_ack`, `exchange`, `queue`,
`modes`), and the ledgers are `unacked`, `confirms` and `prefetch`. `publish_batch` and `delays` say
which copy of a message goes where, `shards` what a sharded exchange's name means to consumers,
`consumer_timeout` when a channel has kept a delivery too long.
"""
