"""Every method of AMQP 0-9-1 as RabbitMQ 3.13 has it, one record each.

Those of class connection, and how `wire` is read, stand in `broker.amqp.spec_connection`; they
are re-exported here, so that users need this module only. `global_` is basic.qos's `global`.

Source: amqp0-9-1.extended.xml (ids, argument order); RabbitMQ's extensions exchange.bind,
basic.nack, confirm.select.
"""

from __future__ import annotations

import msgspec

from broker.amqp.spec_connection import (
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
)


class ChannelOpen(Method):
    """Opens a channel."""

    class_id, method_id = 20, 10
    wire = "-:shortstr"


class ChannelOpenOk(Method):
    """The channel is open."""

    class_id, method_id = 20, 11
    wire = "-:longstr"


class ChannelFlow(Method):
    """Asks the peer to pause or resume content."""

    class_id, method_id = 20, 20
    wire = "active:bit"
    active: bool = False


class ChannelFlowOk(Method):
    """Confirms channel.flow."""

    class_id, method_id = 20, 21
    wire = "active:bit"
    active: bool = False


class ChannelClose(Method):
    """Ends a channel, with the method at fault where there is one."""

    class_id, method_id = 20, 40
    wire = "reply_code:short reply_text:shortstr failed_class_id:short failed_method_id:short"
    reply_code: int = 0
    reply_text: str = ""
    failed_class_id: int = 0
    failed_method_id: int = 0


class ChannelCloseOk(Method):
    """Confirms channel.close."""

    class_id, method_id = 20, 41


class AccessRequest(Method):
    """AMQP 0-8's realm access; granted always."""

    class_id, method_id = 30, 10
    wire = "realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit"
    realm: str = ""
    exclusive: bool = False
    passive: bool = False
    active: bool = False
    write: bool = False
    read: bool = False


class AccessRequestOk(Method):
    """Grants access.request."""

    class_id, method_id = 30, 11
    wire = "ticket:short"
    ticket: int = 0


class ExchangeDeclare(Method):
    """Creates or checks an exchange."""

    class_id, method_id = 40, 10
    wire = (
        "-:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit "
        "internal:bit no_wait:bit arguments:table"
    )
    exchange: str = ""
    type: str = ""
    passive: bool = False
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    no_wait: bool = False
    arguments: dict[str, object] = msgspec.field(default_factory=dict)


class ExchangeDeclareOk(Method):
    """Confirms exchange.declare."""

    class_id, method_id = 40, 11


class ExchangeDelete(Method):
    """Deletes an exchange."""

    class_id, method_id = 40, 20
    wire = "-:short exchange:shortstr if_unused:bit no_wait:bit"
    exchange: str = ""
    if_unused: bool = False
    no_wait: bool = False


class ExchangeDeleteOk(Method):
    """Confirms exchange.delete."""

    class_id, method_id = 40, 21


class ExchangeBind(Method):
    """Binds an exchange to an exchange."""

    class_id, method_id = 40, 30
    wire = (
        "-:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit "
        "arguments:table"
    )
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    no_wait: bool = False
    arguments: dict[str, object] = msgspec.field(default_factory=dict)


class ExchangeBindOk(Method):
    """Confirms exchange.bind."""

    class_id, method_id = 40, 31


class ExchangeUnbind(Method):
    """Removes an exchange's binding to an exchange."""

    class_id, method_id = 40, 40
    wire = (
        "-:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit "
        "arguments:table"
    )
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    no_wait: bool = False
    arguments: dict[str, object] = msgspec.field(default_factory=dict)


class ExchangeUnbindOk(Method):
    """Confirms exchange.unbind; its id is 51, not 41."""

    class_id, method_id = 40, 51


class QueueDeclare(Method):
    """Creates or checks a queue."""

    class_id, method_id = 50, 10
    wire = (
        "-:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit "
        "no_wait:bit arguments:table"
    )
    queue: str = ""
    passive: bool = False
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    no_wait: bool = False
    arguments: dict[str, object] = msgspec.field(default_factory=dict)


class QueueDeclareOk(Method):
    """Confirms queue.declare with the queue's name and counts."""

    class_id, method_id = 50, 11
    wire = "queue:shortstr message_count:long consumer_count:long"
    queue: str = ""
    message_count: int = 0
    consumer_count: int = 0


class QueueBind(Method):
    """Binds a queue to an exchange."""

    class_id, method_id = 50, 20
    wire = (
        "-:short queue:shortstr exchange:shortstr routing_key:shortstr no_wait:bit arguments:table"
    )
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    no_wait: bool = False
    arguments: dict[str, object] = msgspec.field(default_factory=dict)


class QueueBindOk(Method):
    """Confirms queue.bind."""

    class_id, method_id = 50, 21


class QueuePurge(Method):
    """Removes a queue's ready messages."""

    class_id, method_id = 50, 30
    wire = "-:short queue:shortstr no_wait:bit"
    queue: str = ""
    no_wait: bool = False


class QueuePurgeOk(Method):
    """Confirms queue.purge."""

    class_id, method_id = 50, 31
    wire = "message_count:long"
    message_count: int = 0


class QueueDelete(Method):
    """Deletes a queue."""

    class_id, method_id = 50, 40
    wire = "-:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit"
    queue: str = ""
    if_unused: bool = False
    if_empty: bool = False
    no_wait: bool = False


class QueueDeleteOk(Method):
    """Confirms queue.delete."""

    class_id, method_id = 50, 41
    wire = "message_count:long"
    message_count: int = 0


class QueueUnbind(Method):
    """Removes a queue's binding."""

    class_id, method_id = 50, 50
    wire = "-:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table"
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    arguments: dict[str, object] = msgspec.field(default_factory=dict)


class QueueUnbindOk(Method):
    """Confirms queue.unbind."""

    class_id, method_id = 50, 51


class BasicQos(Method):
    """Sets prefetch for later consumers, or for the channel (`global_`)."""

    class_id, method_id = 60, 10
    wire = "prefetch_size:long prefetch_count:short global_:bit"
    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


class BasicQosOk(Method):
    """Confirms basic.qos."""

    class_id, method_id = 60, 11


class BasicConsume(Method):
    """Starts a consumer."""

    class_id, method_id = 60, 20
    wire = (
        "-:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit "
        "no_wait:bit arguments:table"
    )
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    no_wait: bool = False
    arguments: dict[str, object] = msgspec.field(default_factory=dict)


class BasicConsumeOk(Method):
    """Confirms basic.consume with the consumer's tag."""

    class_id, method_id = 60, 21
    wire = "consumer_tag:shortstr"
    consumer_tag: str = ""


class BasicCancel(Method):
    """Ends a consumer; from the server too, when its queue has gone."""

    class_id, method_id = 60, 30
    wire = "consumer_tag:shortstr no_wait:bit"
    consumer_tag: str = ""
    no_wait: bool = False


class BasicCancelOk(Method):
    """Confirms basic.cancel."""

    class_id, method_id = 60, 31
    wire = "consumer_tag:shortstr"
    consumer_tag: str = ""


class BasicPublish(Method):
    """Publishes the content that follows."""

    class_id, method_id = 60, 40
    wire = "-:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit"
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False


class BasicReturn(Method):
    """Gives an unroutable message back."""

    class_id, method_id = 60, 50
    wire = "reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr"
    reply_code: int = 0
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


class BasicDeliver(Method):
    """Hands a message to a consumer."""

    class_id, method_id = 60, 60
    wire = (
        "consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr "
        "routing_key:shortstr"
    )
    consumer_tag: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""


class BasicGet(Method):
    """Takes one message."""

    class_id, method_id = 60, 70
    wire = "-:short queue:shortstr no_ack:bit"
    queue: str = ""
    no_ack: bool = False


class BasicGetOk(Method):
    """The message that basic.get took."""

    class_id, method_id = 60, 71
    wire = (
        "delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr "
        "message_count:long"
    )
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""
    message_count: int = 0


class BasicGetEmpty(Method):
    """There was nothing to get."""

    class_id, method_id = 60, 72
    wire = "-:shortstr"


class BasicAck(Method):
    """Settles deliveries, or confirms publishes."""

    class_id, method_id = 60, 80
    wire = "delivery_tag:longlong multiple:bit"
    delivery_tag: int = 0
    multiple: bool = False


class BasicReject(Method):
    """Refuses one delivery."""

    class_id, method_id = 60, 90
    wire = "delivery_tag:longlong requeue:bit"
    delivery_tag: int = 0
    requeue: bool = False


class BasicRecoverAsync(Method):
    """Deprecated basic.recover without a reply."""

    class_id, method_id = 60, 100
    wire = "requeue:bit"
    requeue: bool = False


class BasicRecover(Method):
    """Requeues everything unsettled on the channel."""

    class_id, method_id = 60, 110
    wire = "requeue:bit"
    requeue: bool = False


class BasicRecoverOk(Method):
    """Confirms basic.recover."""

    class_id, method_id = 60, 111


class BasicNack(Method):
    """Refuses deliveries, or publishes."""

    class_id, method_id = 60, 120
    wire = "delivery_tag:longlong multiple:bit requeue:bit"
    delivery_tag: int = 0
    multiple: bool = False
    requeue: bool = False


class ConfirmSelect(Method):
    """Turns publisher confirms on."""

    class_id, method_id = 85, 10
    wire = "no_wait:bit"
    no_wait: bool = False


class ConfirmSelectOk(Method):
    """Confirms confirm.select."""

    class_id, method_id = 85, 11


class TxSelect(Method):
    """Makes the channel transactional."""

    class_id, method_id = 90, 10


class TxSelectOk(Method):
    """Confirms tx.select."""

    class_id, method_id = 90, 11


class TxCommit(Method):
    """Commits the transaction."""

    class_id, method_id = 90, 20


class TxCommitOk(Method):
    """Confirms tx.commit."""

    class_id, method_id = 90, 21


class TxRollback(Method):
    """Abandons the transaction."""

    class_id, method_id = 90, 30


class TxRollbackOk(Method):
    """Confirms tx.rollback."""

    class_id, method_id = 90, 31


METHODS: dict[tuple[int, int], type[Method]] = {
    (kind.class_id, kind.method_id): kind for kind in Method.__subclasses__()
}
"""Method classes by (class id, method id)."""

__all__ = [
    "METHODS",
    "AccessRequest",
    "AccessRequestOk",
    "BasicAck",
    "BasicCancel",
    "BasicCancelOk",
    "BasicConsume",
    "BasicConsumeOk",
    "BasicDeliver",
    "BasicGet",
    "BasicGetEmpty",
    "BasicGetOk",
    "BasicNack",
    "BasicPublish",
    "BasicQos",
    "BasicQosOk",
    "BasicRecover",
    "BasicRecoverAsync",
    "BasicRecoverOk",
    "BasicReject",
    "BasicReturn",
    "ChannelClose",
    "ChannelCloseOk",
    "ChannelFlow",
    "ChannelFlowOk",
    "ChannelOpen",
    "ChannelOpenOk",
    "ConfirmSelect",
    "ConfirmSelectOk",
    "ConnectionBlocked",
    "ConnectionClose",
    "ConnectionCloseOk",
    "ConnectionOpen",
    "ConnectionOpenOk",
    "ConnectionSecure",
    "ConnectionSecureOk",
    "ConnectionStart",
    "ConnectionStartOk",
    "ConnectionTune",
    "ConnectionTuneOk",
    "ConnectionUnblocked",
    "ConnectionUpdateSecret",
    "ConnectionUpdateSecretOk",
    "ExchangeBind",
    "ExchangeBindOk",
    "ExchangeDeclare",
    "ExchangeDeclareOk",
    "ExchangeDelete",
    "ExchangeDeleteOk",
    "ExchangeUnbind",
    "ExchangeUnbindOk",
    "Method",
    "QueueBind",
    "QueueBindOk",
    "QueueDeclare",
    "QueueDeclareOk",
    "QueueDelete",
    "QueueDeleteOk",
    "QueuePurge",
    "QueuePurgeOk",
    "QueueUnbind",
    "QueueUnbindOk",
    "TxCommit",
    "TxCommitOk",
    "TxRollback",
    "TxRollbackOk",
    "TxSelect",
    "TxSelectOk",
]
