"""The log as messages of `amq.rabbitmq.log` (`log.exchange = true`).

Lines come from any thread; the event loop publishes them, at most `LINES_MAX` every `GATHER_S`.
What is logged by publishing them is not published: no line begets another. A line that a queue logs
later because of one can't be told from others, and so the rate has an end.

Source: rabbit_logger_exchange_h.erl (routing key, properties, headers).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from typing import Final

from broker.amqp.content import Properties, build_message
from broker.config import LogSettings
from broker.logs import levels
from broker.logs.formatting import formatter
from broker.server.events.system_exchange import SystemExchange

OUTPUT: Final = "exchange"
"""Its name among the outputs of the log."""

WAITING_MAX: Final = 1_000
LINES_MAX: Final = 100
GATHER_S: Final = 0.1


class LogExchange(logging.Handler):
    """An output of the log.

    Args:
        exchange: Where lines go.
        node: This node's name.
        settings: Level and form of lines.
    """

    def __init__(self, exchange: SystemExchange, node: str, settings: LogSettings) -> None:
        super().__init__()
        self._exchange = exchange
        self._node = node
        form = settings.formats.get(OUTPUT, "plain")
        self._content_type = "application/json" if form == "json" else "text/plain"
        self.setFormatter(formatter(form))
        levels.limit(self, settings.level, settings.levels.get(OUTPUT))
        self._waiting: deque[logging.LogRecord] = deque(maxlen=WAITING_MAX)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._is_due = self._is_publishing = False

    async def declare(self) -> None:
        """Declare the exchange if it is not there."""
        await self._exchange.declare()

    def begin(self) -> None:
        """Take lines from now on; called on the event loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        logging.getLogger().addHandler(self)

    def end(self) -> None:
        """Take no more lines."""
        logging.getLogger().removeHandler(self)
        self._loop = None
        self._waiting.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line until the loop publishes it; the oldest goes where too many wait."""
        loop = self._loop
        if loop is None or (self._is_publishing and threading.get_ident() == self._thread):
            return
        self._waiting.append(record)
        if not self._is_due:
            self._is_due = True
            try:
                loop.call_soon_threadsafe(self._publish)
            except RuntimeError:  # the loop has ended
                self._loop = None

    def _publish(self) -> None:
        loop, self._is_publishing = self._loop, True
        try:
            for _ in range(min(LINES_MAX, len(self._waiting))):
                record = self._waiting.popleft()
                if self._exchange.is_watched:
                    self._publish_one(record)
        finally:
            self._is_publishing = False
            if loop is not None:
                loop.call_later(GATHER_S, self._go_on)

    def _go_on(self) -> None:
        self._is_due = bool(self._waiting)
        if self._is_due:
            self._publish()

    def _publish_one(self, record: logging.LogRecord) -> None:
        try:
            key, body = record.levelname.lower(), self.format(record).encode()
            properties = Properties(
                content_type=self._content_type,
                headers={"node": self._node},
                timestamp=int(record.created),
            )
            self._exchange.publish(key, build_message(self._exchange.name, key, properties, body))
        except Exception:  # noqa: BLE001 - as the library's handlers do
            self.handleError(record)
