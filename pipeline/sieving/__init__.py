"""A long history without the messages that can raise no finding, in two passes of Arrow.

`scan` reads the history once: it counts what happened, keeps the few events that are not about
messages, and writes the others as rows of numbers into buckets on the disk, all rows of a message
into one. Then it looks at each bucket: a message's rows make a card (`marks`), and what no claim
suspects is left out (`suspects`). The lines of the rest are read again, for Spark's judge.

Why the verdict is the same: a transform about messages joins events by queue and `msg_id`, or by
`op_id`. All events of a `msg_id` are kept or none. An event's `op_id` is its `msg_id` with "/" for
"|"; that is one to one, so all events of an `op_id` are kept or none, too. Where it is not so, a
stray, the event is kept, with all of the message that its `msg_id` names and of the one that its
`op_id` names. So what is kept and what is not have neither in common, and a finding about what is
kept is the same with and without the rest. That the rest raises none is said at each suspicion.
`order` looks at neighbours as well: `lines`.

Messages are told apart by a number, which two of them never share (`keys`). What has no number is
odd, and all of it is kept: whatever is mixed up here can only be kept, never left out.
"""
