"""Which order the ready messages of a queue have."""

from __future__ import annotations

from broker.fifo.config import QueueConfig
from broker.fifo.lines.due import DueLine
from broker.fifo.lines.line import Line
from broker.fifo.lines.priority import PriorityLine
from broker.fifo.lines.ready import ReadyLine


def ready_line(config: QueueConfig) -> Line:
    """Return an empty line in the order a queue's settings ask for."""
    if config.order == "priority":
        return PriorityLine(config.priority_max)
    if config.order == "due":
        return DueLine()
    return ReadyLine(by_number=config.requeue == "original")
