"""Half-sent messages on a real node delay only the connections that sent them."""

from __future__ import annotations

import threading

import pytest

from broker.amqp.frames import FRAME, FRAME_BODY, FRAME_END
from tests.cluster.witness import witness
from tests.nodes import Node
from tests.wire.raw import FRAME_MAX, Raw, content_header, publish

MIB = 1 << 20
SIZE = 128 * MIB
LARGE = 8 * MIB
PUBLISHERS = 20


def begin(raw: Raw, queue: str, share: float) -> None:
    """Send so much of a message, as far as the node takes it at once."""
    raw.send(publish(1, queue), content_header(1, SIZE))
    piece = FRAME_MAX - 8
    frame = FRAME.pack(FRAME_BODY, 1, piece) + bytes(piece) + bytes((FRAME_END,))
    raw.socket.settimeout(0.5)
    try:
        for _ in range(int(SIZE * share) // piece):
            raw.socket.sendall(frame)
    except TimeoutError:
        return


def test_six_half_sent_messages_keep_no_other_user_from_publishing(node: Node, name: str) -> None:
    node.api("PUT", f"/users/{name}", {"password": name, "tags": ""})
    node.api("PUT", f"/permissions/%2F/{name}", {"configure": "", "write": ".*", "read": ""})
    six: list[Raw] = []
    try:
        with witness(node) as seen, node.connect() as other:
            channel = other.channel()
            channel.confirm_delivery()
            queue = channel.queue_declare("", exclusive=True).method.queue
            for _ in range(6):
                six.append(Raw(node.amqp_port, user=name).to_channel())
                begin(six[-1], "nowhere", 0.9)
                channel.basic_publish("", queue, bytes(LARGE), mandatory=True)
                channel.queue_purge(queue)
        seen.claim()
    finally:
        for raw in six:
            raw.socket.close()
        node.api("DELETE", f"/users/{name}")


@pytest.mark.long
@pytest.mark.alone
def test_twenty_publishers_of_64_mib_at_once_are_confirmed_one_and_all(
    node: Node, name: str
) -> None:
    """Those that find no room wait. The loop copies each of them, which takes its time."""
    failed: list[BaseException] = []

    def one() -> None:
        try:
            with node.connect(heartbeat=0, blocked_connection_timeout=120) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.basic_publish("", name, bytes(64 * MIB), mandatory=True)
        except BaseException as why:  # noqa: BLE001 - told below
            failed.append(why)

    with node.connect() as connection:
        connection.channel().queue_declare(name, arguments={"x-max-length": 1})
        with witness(node) as seen:
            threads = [threading.Thread(target=one) for _ in range(PUBLISHERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        connection.channel().queue_delete(name)
    assert not failed
    seen.claim(p95_ms_max=500, gap_s_max=3, growth_bytes_max=450 * MIB)
