"""Group 0's replicated machine. Skeleton: signatures hold, bodies follow."""

from __future__ import annotations

from collections.abc import Sequence

from broker.metadata.catalogue import Catalogue
from broker.metadata.results import Changes, Result


class MetadataMachine:
    """Applies requests to the catalogue; a `raft.ports.Machine`.

    Attributes:
        catalogue: The state, for everyone to read.
    """

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self._changes = Changes()

    def apply(self, index: int, data: bytes) -> Result:
        """Apply `commands.encode_request(...)`; a refusal is returned as a `Refusal` value."""
        raise NotImplementedError

    def take_changes(self) -> Changes:
        """What changed since the last call (P6)."""
        changes, self._changes = self._changes, Changes()
        return changes

    def snapshot(self) -> list[bytes]:
        """The whole state in parts of at most 1 MiB."""
        raise NotImplementedError

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        """Replace the whole state."""
        raise NotImplementedError

    def role_changed(self, *, leader: bool, term: int) -> None:
        """Nothing here depends on who leads."""
