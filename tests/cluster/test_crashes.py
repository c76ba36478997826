"""SIGKILL at random moments under load: nothing confirmed is lost, nothing settled returns."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.story import Story, Worker
from tests.nodes import Node, wait_until

PATIENCE_S = 60.0
LIFE_S_MAX = 1.0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Node]:
    """A node to be killed."""
    node = Node("crashing", tmp_path / "node")
    node.start()
    yield node
    node.end()


def kill_again_and_again(node: Node, kills: int, seed: int) -> int:
    """Returns how many messages were confirmed meanwhile."""
    moments = random.Random(seed)
    stories = [
        (Story(node, "plain", 300), 50),
        (Story(node, "large", 20_000), 20),  # contents of their own
        (Story(node, "deep", 2_000, **{"x-queue-mode": "lazy"}), 1_500),  # most of it is paged out
    ]
    confirmed = 0
    for life in range(kills):
        workers = [Worker(story, keeps=keeps) for story, keeps in stories]
        for worker in workers:
            worker.start()
        wait_until(lambda: all(w.confirmed > 20 for w in workers), "load flows", PATIENCE_S)  # noqa: B023
        time.sleep(moments.uniform(0, LIFE_S_MAX))  # the moment is what is drawn here
        node.kill()
        for worker in workers:
            worker.end()
        confirmed += sum(worker.confirmed for worker in workers)
        node.start()
        for story, _ in stories:
            try:
                story.judge()
            except AssertionError as why:
                raise AssertionError(f"{story.queue}, life {life}, seed {seed}: {why}") from None
    return confirmed


@pytest.mark.soak
@pytest.mark.slow
def test_a_node_that_is_killed_five_times_loses_nothing(own: Node) -> None:
    assert kill_again_and_again(own, 5, seed=1) > 1_000


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_node_that_is_killed_at_fifty_random_moments_loses_nothing(own: Node) -> None:
    assert kill_again_and_again(own, 50, seed=random.randrange(1 << 30)) > 10_000
