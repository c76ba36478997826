"""What an operator does to those who hold messages: takes messages away, cancels consumers. Pure.

To the queue it is what the client itself could have said, basic.nack with requeue and basic.cancel:
the same commands, in order with the channel's others, so each type of queue has them already.
Only the client does not know of it. What it says of a message that was given back is ignored
(`broker.session.unacked`); of its consumer's end it is told as of the end of a queue, by
basic.cancel if it declared that it understands one.
"""
