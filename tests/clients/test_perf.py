"""`warrenmq perf` as a publisher: its ways to know that a message is safe."""

from __future__ import annotations

import pytest

from broker.cli.perf.load import Plan, run
from tests.clients.place import Place, name


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "ways",
    [{"tx_size": 1}, {"tx_size": 7}, {"confirm": 1}, {"confirm": 20, "confirm_batch": 20}],
    ids=lambda ways: " ".join(f"{key}={value}" for key, value in ways.items()),
)
async def test_all_it_sends_is_safe(place: Place, ways: dict[str, int]) -> None:
    queue = place.declare(name("perf"))
    plan = Plan(
        uris=(f"amqp://127.0.0.1:{place.here.amqp_port}",),
        queues=(queue,),
        predeclared=True,
        consumers=0,
        persistent=True,
        messages_per_producer=60,
        **ways,
    )
    summary = await run(plan, lambda _: None)
    assert (summary["sent"], summary["confirmed"], summary["nacked"]) == (60, 60, 0)
    assert place.depth(queue) == 60
    place.delete(queue)
