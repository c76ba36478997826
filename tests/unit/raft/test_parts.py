"""raft.parts: large proposals take several entries and come out whole, or not at all."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft import ProposalDropped, RaftHostConfig, parts
from raft.core.messages import NOOP, NORMAL, Entry
from tests.raft_cluster import Cluster, ListMachine
from tests.virtual_loop import run

LARGE = st.integers(0, 4 * parts.ENTRY_BYTES_MAX).map(lambda n: bytes([n % 256]) + bytes(n))


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=5), LARGE), max_size=5))
def test_proposals_come_out_as_they_went_in(proposals: list[bytes]) -> None:
    assembler = parts.ProposalAssembler()
    joined = []
    index = 0
    for proposal in proposals:
        for piece in parts.cut(proposal):
            index += 1
            assert len(piece) <= parts.ENTRY_BYTES_MAX
            whole = assembler.join(Entry(index, 1, 0, piece))
            if whole is not None:
                joined.append(whole)
    assert joined == proposals
    assert not assembler.is_open


@pytest.mark.parametrize("first", [0xC0, 0xC1])
def test_data_that_begins_like_a_frame_is_framed(first: int) -> None:
    data = bytes([first, 1, 2])
    (piece,) = parts.cut(data)
    assert parts.ProposalAssembler().join(Entry(1, 1, 0, piece)) == data
    assert (piece == data) == (first == 0xC0)


def test_the_limits_are_kept_exactly() -> None:
    assert len(parts.cut(bytes(parts.ENTRY_BYTES_MAX))) == 1
    assert len(parts.cut(bytes(parts.ENTRY_BYTES_MAX + 1))) == 2
    assert len(parts.cut(b"\xc1" + bytes(parts.ENTRY_BYTES_MAX - 1))) == 2


@given(st.integers(1, 3), st.sampled_from(["term", "gap", "other", "again"]))
def test_a_torn_proposal_is_dropped(kept: int, how: str) -> None:
    pieces = parts.cut(bytes(range(256)) * 16_384)
    assert len(pieces) == 5
    assembler = parts.ProposalAssembler()
    for index, piece in enumerate(pieces[:kept], 1):
        assert assembler.join(Entry(index, 1, 0, piece)) is None
    if how == "term":
        assert assembler.join(Entry(kept + 1, 2, 0, pieces[-1])) is None
    elif how == "gap":
        assert assembler.join(Entry(kept + 2, 1, 0, pieces[-1])) is None
    elif how == "other":
        assert assembler.join(Entry(kept + 1, 1, 0, b"x")) == b"x"
    else:
        index = kept + 1
        for piece in pieces[:-1]:
            assert assembler.join(Entry(index, 1, 0, piece)) is None
            index += 1
        assert assembler.join(Entry(index, 1, 0, pieces[-1])) == bytes(range(256)) * 16_384
    assert not assembler.is_open


def test_a_large_proposal_is_applied_once_by_everyone() -> None:
    async def main() -> None:
        cluster = Cluster(config=RaftHostConfig(snapshot_entries=2, trailing_entries=0))
        cluster.open(7)
        leader = await cluster.elected(7)
        large = bytes(range(256)) * 40_000
        assert await leader.propose(large) == 1
        assert await leader.propose(b"small") == 2
        await cluster.agreed(7, 2)
        assert cluster.contents(7)[0] == [large, b"small"]
        cluster.close()

    run(main())


def test_no_snapshot_parts_a_proposal() -> None:
    """It is applied over several Readys; a snapshot between them would lose its beginning."""

    async def main() -> None:
        config = RaftHostConfig(snapshot_entries=2, trailing_entries=0)
        cluster = Cluster(names=("n1",), config=config)
        group = cluster.members["n1"].open(7, ("n1",), campaign_at_once=True)
        await cluster.elected(7)
        large = bytes(range(256)) * 40_000
        await group.propose(large)
        await asyncio.sleep(1)
        assert group.status().snapshot_index > 0
        cluster.crash("n1")
        cluster.restart("n1").open(7, None)
        assert await cluster.agreed(7, 1) == [large]
        cluster.close()

    run(main())


def test_a_proposal_larger_than_the_room_is_taken_whole_and_only_then_is_it_full() -> None:
    """P13: taken up to the limit and torn off there, it could never be applied, however often."""

    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        large = leader.propose(bytes(80 * 1024 * 1024))
        with pytest.raises(ProposalDropped):
            await leader.propose(b"beside it")
        assert await large == 1
        assert await leader.propose(b"small") == 2
        await cluster.agreed(7, 2)
        cluster.close()

    run(main())


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=5), LARGE), max_size=5), st.randoms())
def test_a_reader_finds_what_is_applied_however_it_reads(
    given_data: list[bytes], random: Random
) -> None:
    """Any part of the log is read: what ends there and began there comes out, with its place."""
    entries, applied = log_of(given_data, random)
    low = random.randint(0, len(entries))
    high = random.randint(low, len(entries))
    read = entries[low:high]
    found = parts.proposals(read)
    assert found.whole == [each for each in applied if low < each[0] and each[1] <= high]
    assert found.begins_before == (bool(read) and parts.goes_on(read[0]))
    if found.open_from:
        again = parts.proposals(entries[found.open_from - 1 :])
        assert not again.begins_before
        rest = [each for each in applied if each.first_index >= found.open_from]
        assert again.whole == rest

    assembler, whole = parts.ProposalAssembler(), []
    at = 0
    while at < len(entries):
        step = random.randint(1, 3)
        found = parts.proposals(entries[at : at + step], assembler)
        assert not found.begins_before
        whole += found.whole
        at += step
    assert whole == applied


def log_of(data: list[bytes], random: Random) -> tuple[list[Entry], list[parts.Proposal]]:
    """Proposals as entries, some cut short by another leader; and what is applied of them."""
    entries: list[Entry] = []
    applied: list[parts.Proposal] = []
    term, assembler = 1, parts.ProposalAssembler()
    for each in data:
        pieces = parts.cut(each)
        kept = random.randint(1, len(pieces))
        for piece in pieces[:kept]:
            entries.append(Entry(len(entries) + 1, term, NORMAL, piece))
        if kept < len(pieces) or random.random() < 0.3:
            term += 1
            entries.append(Entry(len(entries) + 1, term, NOOP, b""))
    for entry in entries:
        joined = assembler.join(entry)
        if joined is not None:
            applied.append(parts.Proposal(assembler.first_index, entry.index, joined))
    return entries, applied


def test_the_beginning_of_an_entry_tells_what_it_is() -> None:
    small, framed = parts.cut(b"abc"), parts.cut(b"\xc1abc")
    large = parts.cut(bytes(range(256)) * 16_384)
    for piece, is_first, head in (
        (small[0], True, b"abc"),
        (framed[0], True, b"\xc1ab"),
        (large[0], True, bytes(range(3))),
        (large[1], False, large[1][2:5]),
        (large[-1], False, large[-1][2:5]),
    ):
        assert parts.begins(piece[:5]) == is_first
        assert parts.unframed(piece[:5])[:3] == head
    assert parts.begins(b"")


def test_a_machine_gets_the_index_of_the_last_part() -> None:
    class Indexes(ListMachine):
        def __init__(self) -> None:
            super().__init__()
            self.indexes: list[int] = []

        def apply(self, index: int, data: bytes) -> object:
            self.indexes.append(index)
            return super().apply(index, data)

    async def main() -> None:
        cluster = Cluster(["n1"])
        machine = Indexes()
        group = cluster.members["n1"].host.open_group(7, ["n1"], machine, campaign_at_once=True)
        await cluster.until(lambda: group.is_leader)
        for size in (1, 2 * parts.ENTRY_BYTES_MAX, 1):
            await group.propose(bytes(size))
        assert machine.indexes == [2, 5, 6]  # 1 is the leader's first, which has no data
        cluster.close()

    run(main())
