"""Chaos from outside: real nodes, real clients, faults from a seed, a history, a judge.

Five words, five places, after Jepsen. `chaos.generators` says what each client does next and is
pure. `chaos.clients` does it with pika and writes every operation to the history. `chaos.faults`
breaks nodes, and links through `chaos.proxies`, on a schedule drawn from the seed.
`chaos.history` is the only thing the judges see. `chaos.checkers` are pure functions from a
history to findings, so that an old run can be judged again by a better checker.

The package imports nothing of the broker: it starts nodes with the command line, talks AMQP and
HTTP, and would judge any other broker alike.

What is promised, for a publish p to a queue q and a fault window F:

* A confirmed p is delivered from q at least once, by the end of the drain.
* Nothing is delivered that was not published, or with another body.
* What a consumer acked earlier than 2 s before F, or after F, is not delivered again.
* A copy is delivered at most once without the redelivered flag.
* First deliveries to one consumer keep the order of each publisher's channel.
* Every publish gets at most one ack or nack, and none is answered that was not sent.
* While one consumer holds a copy no other gets it, away from F.
* The queue confirms again within 6 s of a kill, within 8 s of a pause or a cut.

Where a policy lets a mirror become master that lacks messages, what was published before that
mirror joined may be lost, and nothing else.

What is not promised: an outcome for a publish whose confirm never came. It is *unknown*: neither
lost nor required. A nack is unknown too.
"""
