"""Looks through the messages of a queue or stream, which stay as they are.

    question    what is asked for, from the query of a request
    sources     the messages behind a place, with their bodies, a batch at a time
    documents   what a body is: decompressed, decoded; bounded, whatever the body
    masking     hides what the settings name, before anything looks at it
    conditions  which messages are wanted
    rows        how a message is shown
    browser     finds the node that has them, and keeps the bounds

No consumer is attached and nothing is taken: `redelivered`, order, counts and deliveries are those
of a queue at which nobody has looked.
"""
