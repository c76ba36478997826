"""Whom a leader sends entries at once, and whom a little later and many together.

A commit needs a majority. So entries go at once to as many followers as make one together with the
leader, the favourites, and not yet to the others, which would only answer the same. These get
theirs with the leader's next tick, or sooner when they lack much: one append and one answer for
what were twenty of each. When a favourite keeps a commit waiting, everybody gets everything (the
hedge; the host says when), and another one is favoured until this one has caught up.

What makes an entry committed is not changed by this, only when who gets it.

Invariants:
1. Nothing is withheld from anybody while members change, while leadership is handed over, and
   where fewer followers are fit than a majority needs, as at the beginning of a term.
2. Nothing is withheld from a learner, nor from a follower whose log is not known to agree.
3. What is withheld leaves at the leader's next tick at the latest.

Source:
    "Thrifty" operation: Moraru, Andersen and Kaminsky, EPaxos (SOSP 2013), section 6; their
    implementation likewise sends to the rest when the chosen ones do not answer.
"""

from __future__ import annotations

from raft.core.progress import Mode, Progress
from raft.core.state import Replica


def favourites(replica: Replica) -> tuple[str, ...] | None:
    """Who gets entries at once; None: everybody.

    Whoever was favoured stays so while it is fit; else those who come next after the leader's name.
    So the groups that a node leads favour the same followers, and what they send at the same time
    still travels together.
    """
    voters = replica.configuration.voters
    needed = len(voters) // 2
    if (
        not replica.config.lag_entries_max
        or len(voters) - 1 <= needed
        or replica.transfer_target is not None
        or replica.log.commit < replica.history.last_index
        or not replica.is_voter
    ):
        return None
    chosen = replica.thrift.favourites
    if len(chosen) == needed and all(_is_fit(replica, node) for node in chosen):
        return chosen
    fit = [node for node in voters if node != replica.name and _is_fit(replica, node)]
    if len(fit) < needed:
        replica.thrift.favourites = ()
        return None
    fit.sort(key=lambda node: (node not in chosen, node < replica.name, node))
    replica.thrift.favourites = tuple(fit[:needed])
    return replica.thrift.favourites


def _is_fit(replica: Replica, node: str) -> bool:
    progress = replica.progress.get(node)
    return (
        progress is not None
        and progress.mode is Mode.REPLICATE
        and progress.match >= progress.fit_from
        and not progress.inflight.is_full
        and node not in replica.suspected
    )


def may_wait(replica: Replica, node: str, progress: Progress) -> bool:
    """Whether entries for a follower that is not favoured may be withheld for now."""
    config = replica.config
    return (
        progress.mode is Mode.REPLICATE
        and replica.log.last_index - progress.next + 1 < config.lag_entries_max
        and replica.thrift.own_bytes - progress.bytes_before < config.lag_bytes_max
        and node in replica.configuration.voters
    )


def is_commit_late(replica: Replica) -> bool:
    """Whether a commit has waited since the host's last call, and not for want of patience.

    A favourite that has answered something since then lives and is at it: on a busy machine, asking
    more followers would only make everybody slower. One that has not is blamed: it is no favourite
    before it has caught up. If none lacks anything, it is the leader's own disk that is late.
    """
    book, log = replica.thrift, replica.log
    mark, before = book.hedge_mark, book.hedge_matches
    book.hedge_mark = log.last_index
    book.hedge_matches = {
        node: replica.progress[node].match for node in book.favourites if node in replica.progress
    }
    if not book.has_withheld or log.commit >= mark:
        return False
    lacking = [node for node, match in book.hedge_matches.items() if match < mark]
    silent = [node for node in lacking if book.hedge_matches[node] == before.get(node)]
    for node in silent:
        replica.progress[node].fit_from = log.last_index
    return bool(silent) or not lacking
