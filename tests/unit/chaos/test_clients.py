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

    def basic_publish(self, *arguments, **options): ...


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
