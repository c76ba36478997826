"""AMQP 0-9-1 on the wire: bytes in, commands out, and back. Pure: no IO, clock or randomness.

The problem: a broker in Python has about a microsecond for each message here, must understand every
client, and must survive every other sender of bytes.

The idea: read as little as possible. A message's header and body frames are kept as the bytes they
came in (`broker.message`) and sent on as such; what publishing asks of its properties is remembered
by their raw bytes. Whole publishes are recognised in one step, and whatever that step does not like
falls back to one plain state machine, which alone says what an error is.

    spec, spec_connection   the methods, as records
    fields, methods         tables and methods, to records and back
    content                 message properties: facts for publishing, all of them on demand
    commands, partial       what comes out; a content that is not complete yet
    assembler               bytes to commands, for one connection: the hot loop
    frames                  commands to bytes; the fast way for a batch of deliveries
    sasl, connection        logins, and channel 0: handshake, limits, heartbeats, close
    connection_events       what channel 0 asks of its caller

Guaranteed: the same bytes give the same commands however the network cuts them; nothing a peer
sends raises out of `Assembler.feed` or `ConnectionMachine.receive`; nothing is allocated for bytes
that have not come, and every cache, buffer, nesting and count has a bound. Not guaranteed: that a
command makes sense on its channel. That is `broker.session`'s to say.
"""
