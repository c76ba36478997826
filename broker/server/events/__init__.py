"""Events of the broker as messages of `amq.rabbitmq.event` (docs/events.md).

changes    the events of a change of group 0, by its command and result    `changes`, pure
system_exchange   an exchange to which the broker itself publishes    `SystemExchange`
log        the log as messages of `amq.rabbitmq.log`          `LogExchange`
stream     the latest events, for who asks over HTTP          `EventStream`
exchange   the event exchange: publishes events where anybody is bound    `exchange`
"""
