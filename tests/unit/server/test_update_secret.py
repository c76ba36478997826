"""connection.update-secret: internal users keep their password; permissions are checked again.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

from broker.amqp import spec
from broker.metadata import commands
from tests.unit.server.rig import Client, Node, virtually

SECRET = spec.ConnectionUpdateSecret(b"another", "the old one ends")


async def consuming() -> tuple[Node, Client]:
    node = Node()
    client = await node.client().with_channel()
    client.send(spec.QueueDeclare("q"), spec.BasicConsume("q", "tag"), channel=1)
    assert isinstance((await client.heard())[-1], spec.BasicConsumeOk)
    return node, client


@virtually
async def test_a_new_secret_is_taken() -> None:
    """Rows: 1.1 connection.update-secret"""
    _, client = await consuming()
    client.send(SECRET)
    assert await client.heard() == [spec.ConnectionUpdateSecretOk()]


@virtually
async def test_a_user_that_is_gone_is_refused() -> None:
    """Case 56.

    Rows: 1.1 connection.update-secret
    """
    node, client = await consuming()
    node.world.apply(commands.DeleteUser("guest"))
    client.send(SECRET)
    close = (await client.heard())[-1]
    assert isinstance(close, spec.ConnectionClose)
    text = "NOT_ALLOWED - New secret was refused by one of the backends"
    assert (close.reply_code, close.reply_text) == (530, text)
    assert (close.failed_class_id, close.failed_method_id) == (10, 70)


@virtually
async def test_rights_are_looked_at_again() -> None:
    """Case 56: who may not read any more does not go on consuming."""
    node, client = await consuming()
    node.world.apply(commands.SetPermissions("guest", "/", ".*", ".*", "^$"))
    client.send(SECRET)
    closed, answer = await client.heard()
    assert isinstance(closed, spec.ChannelClose)
    assert closed.reply_code == 403
    assert answer == spec.ConnectionUpdateSecretOk()
