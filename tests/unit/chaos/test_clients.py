"""The events that a publisher records for the answers it gets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pika.spec import Basic

from chaos import history
from chaos.checkers import confirms, facts
from chaos.clients import Publisher
from chaos.history import Recording
from tests.unit.chaos import forge


class Channel:
    """As much of pika's as a publisher needs."""

    channel_number = 1

    def confirm_delivery(self, answered, callback):
        self.answered = answered

    def add_on_close_callback(self, closed): ...

    def add_on_return_callback(self, returned): ...

    def __init__(self):
        self.sent = []

    def basic_publish(self, exchange, key, content, properties, **options):
        self.sent.append((content, properties.headers))


def findings_after(directory, *answers):
    """Of the history of three publishes and what the broker answers."""
    recording, channel = Recording("run", directory), Channel()
    recorder = recording.recorder("p1")
    publisher = Publisher("p1", recorder, iter(()), {}, queue="q", plan=iter(()))
    publisher._channel_opened(channel)
    for _ in range(3):
        publisher._publish(0)
    for answer in answers:
        channel.answered(SimpleNamespace(method=answer))
    recording.merge()
    events = history.load(directory / history.FILE)
    return [item.kind for item in confirms.once(facts.gather(events, forge.OPTIONS))], events


def test_an_ack_of_several_confirms_each_once(tmp_path):
    found, events = findings_after(tmp_path, Basic.Ack(1), Basic.Ack(3, multiple=True))
    assert found == []
    assert [event.seq for event in events if event.op == "confirm"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("again", "kind"),
    [
        (Basic.Ack(3, multiple=True), "confirm-twice"),
        (Basic.Nack(2, multiple=True), "confirm-twice"),
        (Basic.Ack(9, multiple=True), "confirm-unasked"),
    ],
)
def test_a_second_answer_to_several_is_seen(tmp_path, again, kind):
    found, _ = findings_after(tmp_path, Basic.Ack(3, multiple=True), again)
    assert found == [kind]


def test_a_named_publisher_sends_again_what_its_last_connection_heard_nothing_of(tmp_path):
    """Under the first number, and as the same publish of the history."""
    recording = Recording("run", tmp_path)
    publisher = Publisher(
        "p1", recording.recorder("p1"), iter(()), {}, queue="q", plan=iter(()), is_named=True
    )
    first, second = Channel(), Channel()
    publisher._label = "p1.1"
    publisher._channel_opened(first)
    for _ in range(3):
        publisher._publish(0)
    first.answered(SimpleNamespace(method=Basic.Ack(1)))
    publisher._lost("closed")
    publisher._label = "p1.2"
    publisher._channel_opened(second)
    publisher._ended.set()  # the plan is empty: nothing new
    publisher._is_over = False
    publisher._begin()
    assert second.sent == first.sent[1:]
    assert [headers["x-warren-publishing-id"] for _, headers in second.sent] == [2, 3]
    second.answered(SimpleNamespace(method=Basic.Ack(2, multiple=True)))
    recording.merge()
    events = history.load(tmp_path / history.FILE)
    assert list(confirms.once(facts.gather(events, forge.STREAM_OPTIONS))) == []
    assert [(e.op, e.seq) for e in events if e.op != "publish"] == [
        ("confirm", 1), ("unknown", 2), ("unknown", 3), ("confirm", 2), ("confirm", 3),
    ]  # fmt: skip
