"""Copies of messages that a traced vhost leaves at amq.rabbitmq.trace (the firehose). Pure."""
