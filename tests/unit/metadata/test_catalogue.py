"""Reading: routes, when cached ones end, and which exchanges need headers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.metadata import commands
from tests.unit.metadata.cluster import founded
from tests.unit.routing.test_topic import matches


def names(asker, exchange: str, key: str, headers=None, extra=()) -> list[str] | None:
    route = asker.machine.catalogue.route("/", exchange, key, headers, extra)
    return None if route is None else sorted(queue.name for queue in route.queues)


def test_default_exchange_routes_by_queue_name_and_lists_no_bindings():
    asker = founded()
    asker.queue("q")
    asker.queue("r")
    assert names(asker, "", "q") == ["q"]
    assert names(asker, "", "q", extra=("r", "q", "gone")) == ["q", "r"]
    assert names(asker, "", "gone") == []
    assert names(asker, "gone", "q") is None
    assert asker.machine.catalogue.bindings() == []


def test_namesake_inherits_no_bindings():
    asker = founded()
    asker.queue("q")
    asker.bind("amq.fanout", "q")
    asker.ask(commands.DeleteQueue(asker.index - 1))
    asker.queue("q")
    assert names(asker, "amq.fanout", "") == []
    assert names(asker, "", "q") == ["q"]


def test_alternate_may_be_the_default_exchange():
    asker = founded()
    asker.exchange("x", "direct", arguments={"alternate-exchange": ""})
    asker.queue("q")
    assert names(asker, "x", "q") == ["q"]


def test_route_tells_internal_exchanges():
    route = founded().machine.catalogue.route("/", "amq.rabbitmq.trace", "k")
    assert route is not None
    assert route.exchange.internal


def test_version_moves_with_each_change_of_routing_or_access_only():
    asker = founded()
    catalogue = asker.machine.catalogue

    def moves(step) -> bool:
        before = catalogue.version
        step()
        return catalogue.version > before

    assert moves(lambda: asker.queue("q"))
    assert not moves(lambda: asker.queue("q"))
    assert moves(lambda: asker.bind("amq.direct", "q", "k"))
    assert not moves(lambda: asker.bind("amq.direct", "q", "k"))
    assert moves(lambda: asker.unbind("amq.direct", "q", "k"))
    assert moves(lambda: asker.ask(commands.SetPermissions("guest", "/", "", "", "")))
    assert moves(lambda: asker.ask(commands.DeleteQueue(4)))
    assert not moves(lambda: asker.ask(commands.DeleteQueue(4)))


def test_looks_inside_looks_along_bindings_and_alternates():
    asker = founded()
    catalogue = asker.machine.catalogue
    asker.exchange("far", "direct", arguments={"alternate-exchange": "amq.headers"})
    assert catalogue.looks_inside("/", "amq.headers")
    assert catalogue.looks_inside("/", "far")
    assert not catalogue.looks_inside("/", "amq.fanout")
    asker.bind("amq.fanout", "far", kind="exchange")
    asker.bind("far", "amq.fanout", kind="exchange")
    assert catalogue.looks_inside("/", "amq.fanout")
    assert not catalogue.looks_inside("/", "gone")


KEY = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=3)
WORDS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3)
EDGES = st.lists(
    st.tuples(
        st.integers(0, 3), st.booleans(), st.integers(0, 3), KEY.filter(lambda k: k.count("#") < 3)
    ),
    max_size=15,
)


@given(
    kinds=st.tuples(*[st.sampled_from(["direct", "fanout", "topic"])] * 4),
    alternates=st.tuples(*[st.one_of(st.none(), st.integers(0, 4))] * 4),
    edges=EDGES,
    keys=st.lists(WORDS, min_size=1, max_size=2),
)
def test_route_equals_the_naive_walk(kinds, alternates, edges, keys):
    """Exchanges x0..x3 of any type, bound to each other and to queues in any way."""
    asker = founded()
    for number, (kind, alternate) in enumerate(zip(kinds, alternates, strict=True)):
        arguments = {} if alternate is None else {"alternate-exchange": f"x{alternate}"}
        asker.exchange(f"x{number}", kind, arguments=arguments)
        asker.queue(f"q{number}")
    for source, to_queue, target, key in edges:
        kind, name = ("queue", f"q{target}") if to_queue else ("exchange", f"x{target}")
        asker.bind(f"x{source}", name, ".".join(key), kind=kind)

    def naive(start: int) -> list[str]:
        found: set[str] = set()
        seen, pending = {start}, [start]
        while pending:
            here = pending.pop()
            hits = [
                (to_queue, target)
                for source, to_queue, target, key in edges
                if source == here
                and (
                    kinds[here] == "fanout"
                    or (kinds[here] == "direct" and key in keys)
                    or (kinds[here] == "topic" and any(matches(key, each) for each in keys))
                )
            ]
            found.update(f"q{target}" for to_queue, target in hits if to_queue)
            following = [target for to_queue, target in hits if not to_queue]
            if not hits and alternates[here] is not None and alternates[here] < 4:
                following = [alternates[here]]
            pending.extend(each for each in set(following) if each not in seen)
            seen.update(following)
        return sorted(found)

    texts = [".".join(key) for key in keys]
    for start in range(4):
        assert names(asker, f"x{start}", texts[0], None, texts[1:]) == naive(start)
