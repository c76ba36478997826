"""Connections that are closed when their user or vhost is deleted."""

from __future__ import annotations

from broker.amqp import spec
from broker.metadata import commands
from broker.metadata.results import Changes
from broker.server.listener import AmqpListener
from tests.unit.server.rig import Client, Node, turn, virtually


def closes(methods: list[spec.Method]) -> list[tuple[int, str]]:
    return [
        (each.reply_code, each.reply_text)
        for each in methods
        if isinstance(each, spec.ConnectionClose)
    ]


async def served(node: Node) -> tuple[AmqpListener, Client, Client]:
    """Guest's connection, open; and other's, which has logged in and opened nothing yet."""
    listener = AmqpListener(node.context)
    guest, other = await node.client().opened(), await node.client().logged_in(user="other")
    await other.heard()
    for client in (guest, other):
        listener.connections[client.shell.info.connection_id] = client.shell
    return listener, guest, other


@virtually
async def test_a_deleted_users_connections_are_closed() -> None:
    listener, guest, other = await served(Node())
    listener.follow(Changes(users_removed=["other"]))
    assert closes(await guest.heard()) == []
    listener.follow(Changes(users_removed=["guest"]))
    expected = [(320, "CONNECTION_FORCED - user 'guest' is deleted")]
    assert closes(await guest.heard()) == expected
    assert closes(await other.heard()) == []


@virtually
async def test_a_deleted_vhosts_connections_are_closed() -> None:
    listener, guest, _ = await served(Node())
    listener.follow(Changes(vhosts_removed=["/"]))
    assert closes(await guest.heard()) == [(320, "CONNECTION_FORCED - vhost '/' is deleted")]


@virtually
async def test_a_snapshot_may_bring_news_of_deletions() -> None:
    node = Node()
    listener, guest, _ = await served(node)
    listener.follow(Changes(restored=True))
    assert closes(await guest.heard()) == []
    node.world.apply(commands.DeleteUser("guest"))
    listener.follow(Changes(restored=True))
    await turn()
    assert closes(await guest.heard()) == [(320, "CONNECTION_FORCED - user 'guest' is deleted")]


@virtually
async def test_who_logged_in_before_the_deletion_opens_nothing() -> None:
    node = Node()
    _, _, other = await served(node)
    node.world.apply(commands.SetPermissions("other", "/", ".*", ".*", ".*"))
    node.world.apply(commands.DeleteUser("other"))
    other.send(spec.ConnectionOpen("/"))
    text = "NOT_ALLOWED - access to vhost '/' refused for user 'other'"
    assert closes(await other.heard()) == [(530, text)]
