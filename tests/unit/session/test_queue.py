from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.metadata import commands
from broker.session.effects import DeleteQueue, Propose, Stat
from tests.unit.session.rig import Client, World, publish


@pytest.fixture
def client() -> Client:
    return Client(World()).open()


def closed(lines: list[str]) -> tuple[int, str]:
    assert len(lines) == 1
    assert lines[0].startswith("1 channel.close"), lines
    code = int(lines[0].split("reply_code=")[1].split()[0])
    return code, lines[0].split(" - ", 1)[1].split(" failed_class_id=50")[0]


def test_declare_answers_with_counts(client: Client) -> None:
    """Rows: 1.3 passive"""
    assert client.call(spec.QueueDeclare(queue="q")) == ["1 queue.declare-ok queue=q"]
    client.feed(publish(), publish())
    client.call(spec.BasicQos(prefetch_count=1), spec.BasicConsume(queue="q"))
    assert client.call(spec.QueueDeclare(queue="q", passive=True)) == [
        "1 queue.declare-ok queue=q message_count=1 consumer_count=1"
    ]
    assert client.call(spec.QueueDeclare(queue="q")) == [
        "1 queue.declare-ok queue=q message_count=1 consumer_count=1"
    ]


def test_server_named_queue(client: Client) -> None:
    """Rows: 1.3 server-named"""
    assert client.call(spec.QueueDeclare()) == ["1 queue.declare-ok queue=amq.gen-name1-1"]


def test_server_named_quorum_queue_is_406(client: Client) -> None:
    """Rows: 1.3 server-named"""
    arguments: dict[str, object] = {"x-queue-type": "quorum"}
    assert closed(client.call(spec.QueueDeclare(durable=True, arguments=arguments))) == (
        406,
        "Cannot declare a server-named queue for type rabbit_quorum_queue",
    )


def test_passive_declare_of_missing_queue_is_404(client: Client) -> None:
    """Rows: 1.3 passive"""
    lines = client.call(spec.QueueDeclare(queue="q", passive=True))
    assert closed(lines) == (404, "no queue 'q' in vhost '/'")


def test_passive_declare_tells_nothing_to_those_without_permission(client: Client) -> None:
    client.world.apply(commands.SetPermissions("guest", "/", "^$", "^$", "^$"))
    code, text = closed(client.call(spec.QueueDeclare(queue="q", passive=True)))
    assert (code, text) == (
        403,
        "configure access to queue 'q' in vhost '/' refused for user 'guest'",
    )


def test_amq_names_are_reserved(client: Client) -> None:
    lines = client.call(spec.QueueDeclare(queue="amq.mine"))
    assert closed(lines) == (403, "queue name 'amq.mine' contains reserved prefix 'amq.*'")


def test_redeclare_with_other_properties_is_406(client: Client) -> None:
    """Rows: 1.3 equivalence"""
    client.call(spec.QueueDeclare(queue="q", durable=True))
    assert closed(client.call(spec.QueueDeclare(queue="q"))) == (
        406,
        "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is "
        "'true'",
    )


def test_line_ends_are_stripped_from_names(client: Client) -> None:
    assert client.call(spec.QueueDeclare(queue="a\r\nb")) == ["1 queue.declare-ok queue=ab"]


@pytest.mark.parametrize(
    "method",
    [
        spec.QueueDeclare(queue="mine", passive=True),
        spec.QueueDeclare(queue="mine"),
        spec.QueuePurge(queue="mine"),
        spec.QueueDelete(queue="mine"),
        spec.QueueBind(queue="mine", exchange="amq.fanout"),
        spec.BasicConsume(queue="mine"),
        spec.BasicGet(queue="mine"),
    ],
    ids=lambda method: type(method).__name__,
)
def test_exclusive_queue_of_another_connection_is_405(client: Client, method: spec.Method) -> None:
    """Rows: 1.3 exclusive access"""
    other = Client(client.world, 2).open()
    other.call(spec.QueueDeclare(queue="mine", exclusive=True))
    (line,) = client.call(method)
    assert (
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It "
        "could be originally declared on another connection or the exclusive property value does "
        "not match that of the original declaration." in line
    )


def test_dead_letter_exchange_needs_read_and_write(client: Client) -> None:
    client.world.apply(commands.SetPermissions("guest", "/", ".*", "^q$", ".*"))
    arguments: dict[str, object] = {"x-dead-letter-exchange": "dlx"}
    assert closed(client.call(spec.QueueDeclare(queue="q", arguments=arguments))) == (
        403,
        "write access to exchange 'dlx' in vhost '/' refused for user 'guest'",
    )


def test_bind_needs_write_on_queue_and_read_on_exchange(client: Client) -> None:
    client.call(spec.QueueDeclare(queue="q"))
    client.world.apply(commands.SetPermissions("guest", "/", ".*", ".*", "^$"))
    lines = client.call(spec.QueueBind(queue="q", exchange="amq.direct"))
    assert closed(lines) == (
        403,
        "read access to exchange 'amq.direct' in vhost '/' refused for user 'guest'",
    )


def test_bind_to_default_or_missing_exchange(client: Client) -> None:
    client.call(spec.QueueDeclare(queue="q"))
    lines = client.call(spec.QueueBind(queue="q"))
    assert closed(lines) == (403, "operation not permitted on the default exchange")
    client.call(spec.ChannelCloseOk())
    client.open()
    lines = client.call(spec.QueueBind(queue="q", exchange="nope"))
    assert closed(lines) == (404, "no exchange 'nope' in vhost '/'")


def test_empty_names_in_bind_mean_the_queue_declared_last(client: Client) -> None:
    client.call(spec.QueueDeclare(queue="q"))
    assert client.call(spec.QueueBind(exchange="amq.direct")) == ["1 queue.bind-ok"]
    client.feed(publish("q", "amq.direct"))
    assert client.call(spec.QueuePurge()) == ["1 queue.purge-ok message_count=1"]


def test_unbind_is_idempotent(client: Client) -> None:
    """Rows: 1.2 queue.unbind / exchange.unbind"""
    client.call(spec.QueueDeclare(queue="q"))
    method = spec.QueueUnbind(queue="q", exchange="amq.direct", routing_key="k")
    assert client.call(method, method) == ["1 queue.unbind-ok"] * 2
    gone = spec.QueueUnbind(queue="gone", exchange="amq.direct", routing_key="k")
    assert client.call(gone) == ["1 queue.unbind-ok"]


def test_unbind_from_a_durable_queue_on_a_dead_node_is_404(client: Client) -> None:
    """Rows: 1.2 queue.unbind / exchange.unbind"""
    far = commands.DeclareQueue("/", "far", True, False, None, {}, "rabbit@b", ("rabbit@b",))
    client.world.apply(far)
    client.world.apply(commands.EndBoot("rabbit@b", "f" * 16))
    method = spec.QueueUnbind(queue="far", exchange="amq.direct", routing_key="k")
    assert closed(client.call(method)) == (
        404,
        "home node 'rabbit@b' of durable queue 'far' in vhost '/' is down or inaccessible",
    )


def test_purge_leaves_unacknowledged(client: Client) -> None:
    """Rows: 1.3 queue.purge"""
    client.call(spec.QueueDeclare(queue="q"))
    client.feed(publish(), publish())
    client.call(spec.BasicGet(queue="q"))
    assert client.call(spec.QueuePurge(queue="q")) == ["1 queue.purge-ok message_count=1"]


def test_delete_goes_through_the_home_and_counts(client: Client) -> None:
    client.call(spec.QueueDeclare(queue="q"))
    client.feed(publish())
    client.world.log.clear()
    assert client.call(spec.QueueDelete(queue="q")) == ["1 queue.delete-ok message_count=1"]
    assert [type(effect) for effect in client.world.log] == [DeleteQueue]
    assert client.call(spec.QueueDelete(queue="q")) == ["1 queue.delete-ok"]


def test_conditional_deletes(client: Client) -> None:
    """Rows: 1.3 queue.delete"""
    client.call(spec.QueueDeclare(queue="q"))
    client.feed(publish())
    lines = client.call(spec.QueueDelete(queue="q", if_empty=True))
    assert closed(lines) == (406, "queue 'q' in vhost '/' not empty")
    client.call(spec.ChannelCloseOk())
    client.open()
    client.call(spec.BasicConsume(queue="q"))
    lines = client.call(spec.QueueDelete(queue="q", if_unused=True))
    assert closed(lines) == (406, "queue 'q' in vhost '/' in use")


@pytest.mark.parametrize("flag", ["if-unused", "if-empty"])
def test_conditional_delete_of_a_quorum_queue_is_540(client: Client, flag: str) -> None:
    """Rows: 1.16 delete if-unused/if-empty"""
    arguments: dict[str, object] = {"x-queue-type": "quorum"}
    client.call(spec.QueueDeclare(queue="qq", durable=True, arguments=arguments))
    client.call(spec.QueueDelete(queue="qq", **{flag.replace("-", "_"): True}))
    assert client.error is not None
    assert (client.error.code, client.error.text) == (
        540,
        f"cannot delete queue 'qq' in vhost '/'. queue.delete operations with {flag} flag set are "
        "not supported by quorum queues",
    )


def test_no_wait_gets_no_answers(client: Client) -> None:
    assert (
        client.call(
            spec.QueueDeclare(queue="q", no_wait=True),
            spec.QueueBind(queue="q", exchange="amq.direct", no_wait=True),
            spec.QueuePurge(queue="q", no_wait=True),
            spec.QueueDelete(queue="q", no_wait=True),
            spec.QueueDelete(queue="q", no_wait=True),
        )
        == []
    )


def test_exclusive_queue_is_proposed_with_its_owner(client: Client) -> None:
    """Rows: 1.3 durable / exclusive / auto_delete"""
    client.world.log.clear()
    client.call(spec.QueueDeclare(queue="q", exclusive=True, durable=True))
    (command,) = [e.command for e in client.world.log if isinstance(e, Propose)]
    assert isinstance(command, commands.DeclareQueue)
    assert command.exclusive_owner == client.session.owner == "rabbit@a/0123456789abcdef/1"


def test_vhosts_default_queue_type_is_placed_as_such(client: Client) -> None:
    """Rows: 1.3 Default queue type"""
    client.world.apply(commands.AddVhost("/", default_queue_type="quorum"))
    client.call(spec.QueueDeclare(queue="qq", durable=True))
    queue = client.world.catalogue.queue("/", "qq")
    assert queue is not None
    assert queue.type == "quorum"


def test_rights_for_dead_lettering_are_asked_for_at_the_first_declare_only(client: Client) -> None:
    """Rows: 1.5 Config"""
    arguments: dict[str, object] = {"x-dead-letter-exchange": "dlx"}
    client.call(spec.QueueDeclare(queue="q", arguments=arguments))
    client.world.apply(commands.SetPermissions("guest", "/", ".*", "^$", "^$"))
    lines = client.call(spec.QueueDeclare(queue="q", arguments=arguments))
    assert lines == ["1 queue.declare-ok queue=q"]


def test_every_declare_is_told_to_the_queue_as_use(client: Client) -> None:
    """With no_wait nobody waits for an answer, but the queue hears of it.

    Rows: 1.3 passive
    """
    client.world.log.clear()
    client.call(
        spec.QueueDeclare(queue="q"),
        spec.QueueDeclare(queue="q", passive=True),
        spec.QueueDeclare(queue="q", no_wait=True),
        spec.QueueDeclare(queue="q", passive=True, no_wait=True),
    )
    told = [e for e in client.world.log if isinstance(e, Stat)]
    assert [(e.is_declare, bool(e.token)) for e in told] == [
        (True, True),
        (True, True),
        (True, False),
        (True, False),
    ]
