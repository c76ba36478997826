"""Builds messages as frames, and reads them back."""

from __future__ import annotations

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.wire.raw import BODY, METHOD, Raw, content_header, frame


def message(channel: int, queue: str, body: bytes = b"x", *, mandatory: bool = False) -> bytes:
    """A publish to a queue by the default exchange."""
    method = spec.BasicPublish("", queue, mandatory=mandatory)
    return (
        method_frame(channel, method)
        + content_header(channel, len(body))
        + frame(BODY, channel, body)
    )


def skip_content(raw: Raw) -> None:
    """Read the content, of one body frame, that follows a method."""
    frames = [raw.read(), raw.read()]
    assert all(each is not None and each.kind != METHOD for each in frames), frames


def get_behind_a_publish(raw: Raw, queue: str) -> list[str]:
    """Publish and get in one write, while a consumer of channel 2 waits.

    Returns:
        The answers of each channel: what was got, and what was delivered.
    """
    raw.call(2, spec.BasicConsume(queue, "waits", no_ack=True), spec.BasicConsumeOk)
    raw.send(message(1, queue), method_frame(1, spec.BasicGet(queue, no_ack=True)))
    answers: list[str] = []
    while len(answers) < 2:
        found = raw.read()
        assert found is not None, answers
        method = found.method
        if not isinstance(method, spec.BasicGetEmpty):
            skip_content(raw)
        answers.append(f"{found.channel} {type(method).__name__}")
    raw.call(2, spec.BasicCancel("waits"), spec.BasicCancelOk)
    return sorted(answers)


def end_last_consumer(port: int, queue: str, how: str) -> None:
    """Declare an auto-delete queue, consume from it, and end that: return when it is answered.

    Args:
        port: Of the node.
        queue: Its name.
        how: What ends it: "cancel", "channel" or "connection".
    """
    with Raw(port) as raw:
        raw.to_channel()
        raw.call(1, spec.QueueDeclare(queue, auto_delete=True), spec.QueueDeclareOk)
        raw.call(1, spec.BasicConsume(queue, "last"), spec.BasicConsumeOk)
        if how == "cancel":
            raw.call(1, spec.BasicCancel("last"), spec.BasicCancelOk)
        elif how == "channel":
            raw.call(1, spec.ChannelClose(), spec.ChannelCloseOk)
        else:
            raw.call(0, spec.ConnectionClose(), spec.ConnectionCloseOk)
