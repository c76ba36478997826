"""Where messages are sent back to, and how exactly that can be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pipeline.command.configuration import Config, ConfigRefused
from pipeline.jobs import http_api
from pipeline.wire.failures import NotFound
from pipeline.wire.management import Management

TARGETS_MAX: Final = 200


@dataclass(frozen=True)
class Target:
    """One exchange and routing key, or a queue.

    Attributes:
        exchange: "" for a queue or stream of the default exchange.
        key: The routing key; None if each row has its own.
        is_stream: Whether it is a stream of ours: rows come once.
    """

    exchange: str
    key: str | None
    is_stream: bool = False

    @property
    def name(self) -> str:
        """For people."""
        if not self.exchange:
            return f"{'stream' if self.is_stream else 'queue'} {self.key}"
        key = "their own keys" if self.key is None else f"key '{self.key}'"
        return f"exchange {self.exchange}, {key}"

    @property
    def promise(self) -> str:
        """How often a message comes."""
        return "exactly once" if self.is_stream else "at least once"

    def options(self) -> dict[str, str]:
        """Options of the sink."""
        if self.is_stream:
            return {"stream": self.key or "", "delivery": "exactly-once"}
        if not self.exchange:
            return {"queue": self.key or "", "delivery": "at-least-once"}
        routed = {} if self.key is None else {"routingKey": self.key}
        return {"exchange": self.exchange, "delivery": "at-least-once", **routed}


def resolved(config: Config, wanted: Sequence[tuple[str, str | None]]) -> list[Target]:
    """Look at the broker's queues: which of them are streams.

    Args:
        config: Of the job: where the HTTP API is. Without it nothing is known to be a stream.
        wanted: Exchange and routing key of each.

    Raises:
        ConfigRefused: A queue is not there, or there are too many targets.
        WireError: The API does not answer.
    """
    if len(wanted) > TARGETS_MAX:
        raise ConfigRefused(
            [f"where: {len(wanted)} exchanges and routing keys; at most {TARGETS_MAX} at once"]
        )
    if not config.connector().get("httpUrl"):
        return [Target(exchange, key) for exchange, key in wanted]
    http, vhost = http_api.opened(config)
    try:
        return [_resolved(http, vhost, exchange, key) for exchange, key in wanted]
    finally:
        http.close()


def _resolved(http: Management, vhost: str, exchange: str, key: str | None) -> Target:
    if exchange:
        return Target(exchange, key)
    try:
        queue = http.ask("GET", f"/queues/{quote(vhost, safe='')}/{quote(key or '', safe='')}")
    except NotFound:
        raise ConfigRefused([f"there is no queue '{key}' to send messages to"]) from None
    # A stream of another broker knows no units, which is what makes rows come once.
    return Target(exchange, key, queue.get("type") == "stream" and "stream" in queue)
