"""Thrifty replication: a majority gets an entry at once, the others later, many together.

A commit needs a majority. So a leader sends new entries at once to as many followers as make a
majority together with it: the eager followers. The others would only send the same answer again, so
they get the entries with the leader's next tick, or sooner when they lack many: one append and one
answer instead of twenty of each. When an eager follower keeps a commit waiting, all followers get
all entries (the hedge; the host says when), and another follower is chosen until this one has
caught up.

This changes only when a follower gets an entry, not what makes an entry committed.

Invariants:
1. Nothing is withheld while members change, while leadership is handed over, and while fewer
   followers can be eager than a majority needs, as at the beginning of a term.
2. Nothing is withheld from a learner, nor from a follower whose log is not known to agree.
3. Withheld entries leave at the leader's next tick at the latest.

Source:
    "Thrifty" operation: Moraru, Andersen and Kaminsky, EPaxos (SOSP 2013), section 6; their
    implementation also sends to the rest when the chosen ones do not answer.
"""

from __future__ import annotations

from raft.core.progress import Mode, Progress
from raft.core.state import Replica


def eager_followers(replica: Replica) -> tuple[str, ...] | None:
    """Return the followers that get entries at once; None for all of them.

    A follower stays eager while it can. A new one is chosen by name, the next after the leader's.
    So the groups that a node leads choose the same followers, and what they send at the same time
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
    chosen = replica.thrifty.eager_followers
    if len(chosen) == needed and all(_may_be_eager(replica, node) for node in chosen):
        return chosen
    fit = [node for node in voters if node != replica.name and _may_be_eager(replica, node)]
    if len(fit) < needed:
        replica.thrifty.eager_followers = ()
        return None
    fit.sort(key=lambda node: (node not in chosen, node < replica.name, node))
    replica.thrifty.eager_followers = tuple(fit[:needed])
    return replica.thrifty.eager_followers


def _may_be_eager(replica: Replica, node: str) -> bool:
    progress = replica.progress.get(node)
    return (
        progress is not None
        and progress.mode is Mode.REPLICATE
        and progress.match >= progress.caught_up_index
        and not progress.inflight.is_full
        and node not in replica.suspected
    )


def may_wait(replica: Replica, node: str, progress: Progress) -> bool:
    """True while entries for a follower that is not eager may be withheld."""
    config = replica.config
    return (
        progress.mode is Mode.REPLICATE
        and replica.log.last_index - progress.next + 1 < config.lag_entries_max
        and replica.thrifty.own_bytes - progress.bytes_before < config.lag_bytes_max
        and node in replica.configuration.voters
    )


def is_commit_late(replica: Replica) -> bool:
    """True if a commit has waited since the host's last call, and more followers would help.

    An eager follower that has answered something since then is working: on a busy machine, asking
    more followers would only make all of them slower. One that has answered nothing is not chosen
    again before it has caught up. If no eager follower lacks anything, the leader's own disk is
    late.
    """
    book, log = replica.thrifty, replica.log
    mark, before = book.hedge_mark, book.hedge_matches
    book.hedge_mark = log.last_index
    book.hedge_matches = {
        node: replica.progress[node].match
        for node in book.eager_followers
        if node in replica.progress
    }
    if not book.has_withheld or log.commit >= mark:
        return False
    lacking = [node for node, match in book.hedge_matches.items() if match < mark]
    silent = [node for node in lacking if book.hedge_matches[node] == before.get(node)]
    for node in silent:
        replica.progress[node].caught_up_index = log.last_index
    return bool(silent) or not lacking
