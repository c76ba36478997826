"""The history of a run: what each client did and saw, one JSON object on a line.

Every recorder (client, nemesis) numbers its own events from 1 and writes them to a file of its
own while the run lasts; `merge` makes the one `history.ndjson`, ordered by recorder and number.
Clocks only compare events of different recorders (all on one host, one monotonic clock); within
a recorder the number decides, because clocks tie.

Columns left out of a line have their default: "" or 0 or false.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

FILE = "history.ndjson"
_PARTS = "recorders"


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line.

    Attributes:
        run_id: The run.
        recorder: Who wrote it; with `event_no` the key of the line.
        event_no: 1, 2, 3 ... of this recorder.
        ts_us: Monotonic clock of the host, microseconds.
        op: publish confirm nack unknown return; deliver get ack requeue; open close consume
            cancel; fault_start fault_end effect epoch member health load drain depth.
        type: invoke, ok, fail, or info (nobody knows whether it happened).
        op_id: Joins an invoke with its completions: publishes, faults.
        epoch: Times the queue's leader was seen to change before this event.
        node: The node the client is connected to, or the fault's target; "from>to" for the effect
            on a link.
        vhost: The virtual host.
        exchange: Where it was published.
        routing_key: With which key.
        queue: The queue it is about.
        connection: The client's connection, "p1.3" for the third of p1.
        channel: The channel's number.
        consumer_tag: Who received it; unique for each attachment.
        publisher: Whose message; unique for each connection, since order holds within one.
        seq: The publisher's count, from 1.
        msg_id: "publisher|seq".
        delivery_tag: Of the delivery, or of the confirm.
        redelivered: The flag of the delivery.
        stream_offset: Of a stream's message.
        size: Bytes of the body; messages of a depth; of an effect 1 for a process, or the bytes of
            a link.
        body_crc: CRC-32 of the whole body.
        code: Reply code and text, fault kind, effect, why an outcome is unknown; of a member:
            leader, synchronised, joined (not synchronised) or left.
    """

    run_id: str
    recorder: str
    event_no: int
    ts_us: int
    op: str
    type: str
    op_id: str = ""
    epoch: int = 0
    node: str = ""
    vhost: str = ""
    exchange: str = ""
    routing_key: str = ""
    queue: str = ""
    connection: str = ""
    channel: int = 0
    consumer_tag: str = ""
    publisher: str = ""
    seq: int = 0
    msg_id: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    stream_offset: int = 0
    size: int = 0
    body_crc: int = 0
    code: str = ""


class HistoryError(Exception):
    """A history that cannot be read; the text names file and line."""


class Epoch:
    """The number of changes of leader that were seen; one writer, many readers."""

    def __init__(self) -> None:
        self.number = 0


class Recorder:
    """Writes one client's events; used by one thread.

    Args:
        run_id: The run.
        name: The recorder's name, unique in the run.
        path: Its file.
        epoch: Read at each event.
    """

    def __init__(self, run_id: str, name: str, path: Path, epoch: Epoch) -> None:
        self.name = name
        self.confirmed_count = 0
        self._run_id = run_id
        self._epoch = epoch
        self._event_no = 0
        self._file = path.open("wb")
        self._encoder = msgspec.json.Encoder()

    def write(self, op: str, type_: str, **columns: str | int | bool) -> None:
        """Append one event, stamped now.

        Args:
            op: What.
            type_: invoke, ok, fail or info.
            **columns: Columns of `Event`.
        """
        self._event_no += 1
        if op == "confirm":
            self.confirmed_count += 1
        event = Event(
            run_id=self._run_id,
            recorder=self.name,
            event_no=self._event_no,
            ts_us=time.monotonic_ns() // 1000,
            op=op,
            type=type_,
            epoch=self._epoch.number,
            **columns,  # type: ignore[arg-type]  # checked by the struct's decoder in tests
        )
        self._file.write(self._encoder.encode(event) + b"\n")

    def close(self) -> None:
        """Write out what is buffered."""
        self._file.close()


class Recording:
    """All recorders of a run.

    Args:
        run_id: The run.
        directory: The run's directory; must exist.
    """

    def __init__(self, run_id: str, directory: Path) -> None:
        self.run_id = run_id
        self.epoch = Epoch()
        self._directory = directory
        self._parts = directory / _PARTS
        self._parts.mkdir()
        self._recorders: list[Recorder] = []
        self._mutex = threading.Lock()

    def recorder(self, name: str) -> Recorder:
        """A new recorder; its name must be new."""
        recorder = Recorder(self.run_id, name, self._parts / f"{name}.ndjson", self.epoch)
        with self._mutex:
            self._recorders.append(recorder)
        return recorder

    def confirmed_count(self) -> int:
        """Confirms written so far, by all recorders."""
        return sum(recorder.confirmed_count for recorder in self._recorders)

    def merge(self) -> list[Event]:
        """Close all recorders and make the one file.

        Returns:
            The history.
        """
        for recorder in self._recorders:
            recorder.close()
        parts = sorted(self._parts.iterdir())
        history = sorted(
            (event for part in parts for event in load(part)),
            key=lambda event: (event.recorder, event.event_no),
        )
        save(self._directory / FILE, history)
        for part in parts:
            part.unlink()
        self._parts.rmdir()
        return history


def save(path: Path, events: Iterable[Event]) -> None:
    """Write a history."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for event in events:
            file.write(encoder.encode(event) + b"\n")


def load(path: Path) -> list[Event]:
    """Read a history.

    Raises:
        HistoryError: It is not there, or a line is no event.
    """
    decoder = msgspec.json.Decoder(Event)
    events: list[Event] = []
    try:
        with path.open("rb") as file:
            for line in file:
                events.append(decoder.decode(line))  # noqa: PERF401  the line number is len(events)
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise HistoryError(f"{path}:{len(events) + 1}: {error}") from error
    return events


def last_ts_us(events: Sequence[Event]) -> int:
    """The latest time in a history, 0 if it is empty."""
    return max((event.ts_us for event in events), default=0)
