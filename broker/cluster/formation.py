"""Cluster formation: how blank nodes with configured peers agree on a founder (P8). Pure.

Nodes ask each other, round after round, how they stand. A node that meets a member joins it. Else
the blank node with the lowest name means to found: it draws a cluster id, promises it to itself,
and asks for the others' promises. A promise is on disk before it is given, is given to one
candidacy at a time, and is taken back only when the founder itself says that it gave that
candidacy up (or when every configured peer answers in one round, all blank, and the founder does
not stand by it: it was wiped). With promises enough, it founds.

How many are enough? A majority of the configured peers would do if no node ever lost its disk.
So that not even a wiped minority can found a second cluster, any two founding sets must share more
nodes than can be wiped: two of three are too few, three of three are not. For the first 15 s that
many are asked for; after that a majority founds, for an operator who starts with a node missing.
In that case, and only then, wiping a founder while the others cannot be seen could found twice.

Guarantee: without wiped nodes never two clusters; with a wiped minority never two, if the first
was founded within 15 s. Lost, late and repeated answers and crashes at any point change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from broker.cluster.identity import Promise

PATIENCE_MS = 15_000
ABANDONED_MAX = 64


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """A node's state while a cluster forms: sent to others and kept on disk.

    Attributes:
        cluster_id: The cluster it is a member of; "" for none.
        promise: The candidacy that it has promised to support, its own or another's.
        abandoned: Its own candidacies that it gave up.
    """

    cluster_id: str = ""
    promise: Promise | None = None
    abandoned: tuple[str, ...] = ()


class FoundCluster(NamedTuple):
    """Found this cluster."""

    cluster_id: str


class Join(NamedTuple):
    """Ask this member to join its cluster."""

    node: str


class Stand(NamedTuple):
    """Keep this standing (on disk, if it is new) and ask again."""

    standing: Standing


Decision = FoundCluster | Join | Stand


def promises_needed(configured: int, waited_ms: int) -> int:
    """Return the number of promises, the founder's own among them, that found a cluster."""
    if waited_ms >= PATIENCE_MS:
        return configured // 2 + 1
    wiped_max = (configured - 1) // 2
    return (configured + wiped_max) // 2 + 1


def members_needed(configured: int, waited_ms: int, timeout_ms: int) -> int:
    """Return the number of members that a new cluster needs before it accepts clients.

    As many as found it. A queue that is declared earlier would have fewer replicas than it should.

    Args:
        configured: Configured peers, this node included.
        waited_ms: Since this node began to form the cluster.
        timeout_ms: `cluster.formation_timeout`: from then on the founder alone is enough.
    """
    return 1 if waited_ms >= timeout_ms else promises_needed(configured, waited_ms)


def answer(me: str, standing: Standing, asker: str, asked: Standing) -> Standing:
    """Return this node's standing after that of `asker` is known. Save it before replying.

    Args:
        me: This node's name.
        standing: How this node stands.
        asker: Who asks.
        asked: How the asker stands.
    """
    wanted = asked.promise
    if standing.cluster_id or asked.cluster_id or wanted is None or wanted.founder != asker:
        return standing
    held = standing.promise
    if held is None or (held.founder == asker and held.cluster_id in asked.abandoned):
        return Standing("", wanted, standing.abandoned)
    if held.founder == me and asker < me:
        return Standing("", wanted, _given_up(standing))
    return standing


def decide(
    me: str,
    peers: tuple[str, ...],
    standing: Standing,
    answers: Mapping[str, Standing],
    waited_ms: int,
    draw_id: Callable[[], str],
) -> Decision:
    """Decide what a blank node does after it has asked its peers.

    Args:
        me: This node's name.
        peers: All configured peers, this node included.
        standing: How this node stands.
        answers: What others answered in this round, after they took our standing into account.
        waited_ms: Since this node began to form a cluster.
        draw_id: Draws a cluster id nobody has ever drawn.
    """
    members = sorted(node for node, theirs in answers.items() if theirs.cluster_id)
    if members:
        return Join(members[0])
    configured = {node: theirs for node, theirs in answers.items() if node in peers}
    held = standing.promise
    if held is None:
        return Stand(_first_standing(me, standing, configured, draw_id))
    if held.founder != me:
        is_free = _is_void(held, me, peers, configured)
        return Stand(Standing("", None, standing.abandoned) if is_free else standing)
    if any(_outranks(theirs.promise, me) for theirs in configured.values()):
        return Stand(Standing("", None, _given_up(standing)))
    promised = 1 + sum(theirs.promise == held for theirs in configured.values())
    if promised >= promises_needed(len(peers), waited_ms):
        return FoundCluster(held.cluster_id)
    return Stand(standing)


def _first_standing(
    me: str, standing: Standing, configured: Mapping[str, Standing], draw_id: Callable[[], str]
) -> Standing:
    if any(theirs.promise is not None for theirs in configured.values()):
        return standing  # somebody is at it: it will ask us
    if any(node < me for node in configured):
        return standing
    return Standing("", Promise(draw_id(), me), standing.abandoned)


def _outranks(promise: Promise | None, me: str) -> bool:
    return promise is not None and promise.founder < me


def _is_void(
    held: Promise, me: str, peers: tuple[str, ...], configured: Mapping[str, Standing]
) -> bool:
    founder = configured.get(held.founder)
    if founder is None:
        return False
    if held.cluster_id in founder.abandoned:
        return True
    everybody_is_here = all(peer == me or peer in configured for peer in peers)
    return everybody_is_here and founder.promise != held


def _given_up(standing: Standing) -> tuple[str, ...]:
    assert standing.promise is not None
    return (*standing.abandoned, standing.promise.cluster_id)[-ABANDONED_MAX:]
