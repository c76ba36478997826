"""Publishing with confirms, and in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

from pipeline.wire import frames
from pipeline.wire.connection import Connection
from pipeline.wire.contents import Publishes
from pipeline.wire.failures import Stalled, WireError
from pipeline.wire.frames import Name

_PIECE: Final = 256 << 10
"""So much is sent at once: what the broker says meanwhile is looked at in between."""


class Returned(WireError):
    """No queue takes a message: nothing is bound for its exchange and routing key."""


class Rejected(WireError):
    """The broker did not take a message: a limit of its queue, or headers out of bounds."""


class _PublishingChannel:
    """A channel of its own, in a mode that says what is stored.

    Args:
        connection: Where.
        select: The method that chooses the mode, with its arguments.
        selected: The answer to it.

    Attributes:
        publishes: Makes the frames.
    """

    def __init__(self, connection: Connection, select: tuple[Name, bytes], selected: Name) -> None:
        self._connection = connection
        self._channel = connection.open_channel()
        self.publishes = Publishes(self._channel, connection.frame_max)
        connection.send(frames.method(self._channel, *select))
        connection.answer(self._channel, selected)

    def close(self) -> None:
        """Close the channel; what was not committed is dropped."""
        self._connection.close_channel(self._channel)


class Publisher(_PublishingChannel):
    """A channel that confirms.

    Args:
        connection: Where.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, (frames.CONFIRM, b"\0"), frames.CONFIRM_OK)
        self._sent = 0
        self._open: dict[int, None] = {}

    @property
    def unconfirmed(self) -> int:
        """How many messages are not confirmed yet."""
        return len(self._open)

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, made by `publishes`."""
        first = self._sent + 1
        self._sent += len(messages)
        self._open |= dict.fromkeys(range(first, self._sent + 1))
        self._connection.send(b"".join(messages))

    def confirmed(self, unconfirmed_max: int, timeout_s: float) -> list[int]:
        """Wait until at most so many are unconfirmed.

        Returns:
            Numbers of what was confirmed meanwhile, from 1, in the order of sending them.

        Raises:
            Returned: A message has no queue.
            Rejected: The broker refused one.
            Stalled: No confirm came for so long.
        """
        done: list[int] = []
        deadline = monotonic() + timeout_s
        while len(self._open) > unconfirmed_max:
            frame = self._connection.next_frame(deadline)
            if frame is None:
                raise _stalled(self._connection, "confirms", timeout_s)
            if frame.channel != self._channel or frame.name is None:
                continue
            _refuse(self._connection, frame)
            if frame.name != frames.ACK:
                continue
            done += self._settle(int.from_bytes(frame.payload[4:12], "big"), frame.payload[12])
            deadline = monotonic() + timeout_s
        return done

    def _settle(self, tag: int, is_multiple: int) -> list[int]:
        if not is_multiple:
            del self._open[tag]
            return [tag]
        done: list[int] = []
        for number in self._open:
            if number > tag:
                break
            done.append(number)
        for number in done:
            del self._open[number]
        return done


class Transaction(_PublishingChannel):
    """A channel with transactions.

    Args:
        connection: Where.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, (frames.TX_SELECT, b""), frames.TX_SELECT_OK)

    def commit(self, messages: Sequence[bytes], timeout_s: float) -> None:
        """Send messages and commit them.

        Raises:
            Returned: A message has no queue. Others may be stored.
            ChannelClosed: The broker refuses the transaction.
            Stalled: It did not answer.
        """
        data = b"".join(messages)
        view = memoryview(data)
        for at in range(0, len(data), _PIECE):
            self._connection.send(bytes(view[at : at + _PIECE]))
        self._connection.send(frames.method(self._channel, frames.TX_COMMIT))
        deadline = monotonic() + timeout_s
        while True:
            frame = self._connection.next_frame(deadline)
            if frame is None:
                raise _stalled(self._connection, "tx.commit-ok", timeout_s)
            if frame.channel != self._channel or frame.name is None:
                continue
            _refuse(self._connection, frame)
            if frame.name == frames.TX_COMMIT_OK:
                return


def _stalled(connection: Connection, what: str, timeout_s: float) -> Stalled:
    why = f": it takes no messages ({connection.blocked})" if connection.blocked else ""
    return Stalled(f"no {what} from {connection.where} for {timeout_s:.0f} s{why}")


def _refuse(connection: Connection, frame: frames.Frame) -> None:
    if frame.name == frames.CHANNEL_CLOSE:
        connection.closed_by(frame)
    if frame.name == frames.NACK:
        raise Rejected(f"{connection.where} refused a message (basic.nack)")
    if frame.name == frames.RETURN:
        _, text = frames.reply(frame.payload)
        at = 7 + frame.payload[6]
        exchange, at = _short(frame.payload, at)
        key, _ = _short(frame.payload, at)
        where = f"exchange '{exchange}' with routing key '{key}'"
        raise Returned(f"{connection.where} returned a message to {where}: {text}")


def _short(payload: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + payload[at]
    return payload[at + 1 : end].decode("utf-8", "replace"), end
