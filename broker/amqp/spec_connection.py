"""What a method is, and the methods of class connection, one record each.

Declarations only: `broker.amqp.methods` reads `wire` and turns records into bytes and back. `wire`
lists the arguments in wire order as `name:domain`; `-` stands for a reserved argument, which is on
the wire (as zero) and not in the record. Neighbouring bits share an octet. Field names are the
specification's with `_` for `-`; two differ: `global_` (a Python keyword), and close's `class-id`
and `method-id`, which are `failed_class_id` and `failed_method_id` beside the record's own ids.

Source: amqp0-9-1.extended.xml (ids, argument order); RabbitMQ's extensions connection.blocked,
connection.update-secret, exchange.bind, basic.nack, confirm.select.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Method(msgspec.Struct):
    """A method of AMQP.

    Attributes:
        class_id: Class number on the wire.
        method_id: Method number within the class.
        wire: Arguments in wire order, `name:domain` parted by blanks.
    """

    class_id: ClassVar[int] = 0
    method_id: ClassVar[int] = 0
    wire: ClassVar[str] = ""


class ConnectionStart(Method):
    """Server's first word: what it is and how to log in."""

    class_id, method_id = 10, 10
    wire = (
        "version_major:octet version_minor:octet server_properties:table mechanisms:longstr "
        "locales:longstr"
    )
    version_major: int = 0
    version_minor: int = 0
    server_properties: dict[str, object] = msgspec.field(default_factory=dict)
    mechanisms: bytes = b""
    locales: bytes = b""


class ConnectionStartOk(Method):
    """The client's choice of mechanism and its first response."""

    class_id, method_id = 10, 11
    wire = "client_properties:table mechanism:shortstr response:longstr locale:shortstr"
    client_properties: dict[str, object] = msgspec.field(default_factory=dict)
    mechanism: str = ""
    response: bytes = b""
    locale: str = ""


class ConnectionSecure(Method):
    """A further SASL challenge."""

    class_id, method_id = 10, 20
    wire = "challenge:longstr"
    challenge: bytes = b""


class ConnectionSecureOk(Method):
    """The response to a SASL challenge."""

    class_id, method_id = 10, 21
    wire = "response:longstr"
    response: bytes = b""


class ConnectionTune(Method):
    """The server's limits; heartbeat in seconds."""

    class_id, method_id = 10, 30
    wire = "channel_max:short frame_max:long heartbeat:short"
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


class ConnectionTuneOk(Method):
    """The client's limits, which are final; heartbeat in seconds."""

    class_id, method_id = 10, 31
    wire = "channel_max:short frame_max:long heartbeat:short"
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


class ConnectionOpen(Method):
    """Opens a virtual host."""

    class_id, method_id = 10, 40
    wire = "virtual_host:shortstr -:shortstr -:bit"
    virtual_host: str = ""


class ConnectionOpenOk(Method):
    """The virtual host is open."""

    class_id, method_id = 10, 41
    wire = "-:shortstr"


class ConnectionClose(Method):
    """Ends the connection, with the method at fault where there is one."""

    class_id, method_id = 10, 50
    wire = "reply_code:short reply_text:shortstr failed_class_id:short failed_method_id:short"
    reply_code: int = 0
    reply_text: str = ""
    failed_class_id: int = 0
    failed_method_id: int = 0


class ConnectionCloseOk(Method):
    """Confirms connection.close."""

    class_id, method_id = 10, 51


class ConnectionBlocked(Method):
    """The server has stopped reading publishers."""

    class_id, method_id = 10, 60
    wire = "reason:shortstr"
    reason: str = ""


class ConnectionUnblocked(Method):
    """The server reads publishers again."""

    class_id, method_id = 10, 61


class ConnectionUpdateSecret(Method):
    """A new credential for the running connection."""

    class_id, method_id = 10, 70
    wire = "new_secret:longstr reason:shortstr"
    new_secret: bytes = b""
    reason: str = ""


class ConnectionUpdateSecretOk(Method):
    """The new credential was taken."""

    class_id, method_id = 10, 71
