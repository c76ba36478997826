"""Events of the broker as messages of `amq.rabbitmq.event` (docs/events.md).

changes    the events of a change of group 0, by its command and result    `changes`, pure
exchange   the exchange itself: publishes events where anybody is bound    `exchange`
"""
