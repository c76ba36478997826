"""The commands that the assembler makes of a connection's bytes."""

from __future__ import annotations

import msgspec

from broker.amqp import spec
from broker.amqp.content import PropertyFacts
from broker.errors import AmqpError
from broker.message import Message


class Publish(msgspec.Struct, gc=False):
    """A complete basic.publish.

    Attributes:
        channel: Channel it came on.
        mandatory: Return it when it cannot be routed.
        immediate: Not supported by RabbitMQ (540).
        message: The message.
        properties: What publishing needs to know of its properties.
    """

    channel: int
    mandatory: bool
    immediate: bool
    message: Message
    properties: PropertyFacts


class Ack(msgspec.Struct, gc=False):
    """basic.ack."""

    channel: int
    delivery_tag: int
    multiple: bool


class MethodCommand(msgspec.Struct):
    """Any other method, channel 0 included."""

    channel: int
    method: spec.Method


class Fault(msgspec.Struct):
    """The peer broke the protocol. A hard one is the last command that ever comes."""

    channel: int
    error: AmqpError


Command = Publish | Ack | MethodCommand | Fault


def ids_of(command: Command) -> tuple[int, int]:
    """Return the class and method id of a command; 0 and 0 for a fault."""
    if type(command) is Publish:
        return 60, 40
    if type(command) is Ack:
        return 60, 80
    if type(command) is MethodCommand:
        return command.method.class_id, command.method.method_id
    return 0, 0
