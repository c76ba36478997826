"""The mirroring keys of a policy's effective definition.

Definitions are validated before they are stored; a value that validation would refuse (an older
node's, or another key's) reads as its default here, never as an error.

Source: rabbit_mirror_queue_misc.erl policy keys; docs/rabbitmq-behaviour.md 1.13; P23 for
`warren-promote`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self, cast

import msgspec

SYNC_BATCH_SIZE = 4096
"""RabbitMQ's default of `ha-sync-batch-size`, messages."""

HaMode = Literal["all", "exactly", "nodes"]
SyncMode = Literal["manual", "automatic"]
PromoteWhen = Literal["when-synced", "always"]
Promote = Literal["synchronised", "oldest"]
SyncStyle = Literal["blocking", "online"]

HA_MODES: tuple[str, ...] = ("all", "exactly", "nodes")
SYNC_MODES: tuple[str, ...] = ("manual", "automatic")
PROMOTE_WHEN: tuple[str, ...] = ("when-synced", "always")
PROMOTE: tuple[str, ...] = ("synchronised", "oldest")
SYNC_STYLES: tuple[str, ...] = ("blocking", "online")


class HaPolicy(msgspec.Struct, frozen=True):
    """The mirroring part of a queue's effective policy.

    Attributes:
        mode: `ha-mode`.
        count: Replicas with the master (mode "exactly"), else 0.
        nodes: Names as given, "rabbit@node1" (mode "nodes"); they need not exist. Else ().
        sync_mode: `ha-sync-mode`: "automatic" synchronises whenever a mirror joins.
        sync_batch_size: `ha-sync-batch-size`, messages.
        promote_on_shutdown: `ha-promote-on-shutdown`, for a controlled stop of the master.
        promote_on_failure: `ha-promote-on-failure`, for everything else that ends a master.
        promote: `warren-promote`: "oldest" is RabbitMQ's choice, synchronised or not (P23).
        sync_style: `warren-sync`: whether the queue blocks while mirrors are filled.
    """

    mode: HaMode
    count: int = 0
    nodes: tuple[str, ...] = ()
    sync_mode: SyncMode = "manual"
    sync_batch_size: int = SYNC_BATCH_SIZE
    promote_on_shutdown: PromoteWhen = "when-synced"
    promote_on_failure: PromoteWhen = "always"
    promote: Promote = "synchronised"
    sync_style: SyncStyle = "blocking"

    @classmethod
    def of(cls, effective: Mapping[str, object]) -> Self | None:
        """Read an effective definition (`Catalogue.effective_policy`).

        Args:
            effective: Policy keys and values, user and operator policy merged.

        Returns:
            None where nothing asks for mirrors.
        """
        mode = effective.get("ha-mode")
        if mode not in HA_MODES:
            return None
        params = effective.get("ha-params")
        batch = effective.get("ha-sync-batch-size")
        return cls(
            mode=cast("HaMode", mode),
            count=max(1, _integer(params, 1)) if mode == "exactly" else 0,
            nodes=_names(params) if mode == "nodes" else (),
            sync_mode=cast("SyncMode", _word(effective, "ha-sync-mode", SYNC_MODES, "manual")),
            sync_batch_size=max(1, _integer(batch, SYNC_BATCH_SIZE)),
            promote_on_shutdown=cast(
                "PromoteWhen",
                _word(effective, "ha-promote-on-shutdown", PROMOTE_WHEN, "when-synced"),
            ),
            promote_on_failure=cast(
                "PromoteWhen", _word(effective, "ha-promote-on-failure", PROMOTE_WHEN, "always")
            ),
            promote=cast("Promote", _word(effective, "warren-promote", PROMOTE, "synchronised")),
            sync_style=cast("SyncStyle", _word(effective, "warren-sync", SYNC_STYLES, "blocking")),
        )


def _word(effective: Mapping[str, object], key: str, words: tuple[str, ...], otherwise: str) -> str:
    value = effective.get(key)
    return value if isinstance(value, str) and value in words else otherwise


def _integer(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(dict.fromkeys(each for each in value if isinstance(each, str)))
