"""A node's identity in a small synced file beside its store (P9).

Written whole to a temporary file, synced, renamed over the old one, and the folder synced: after a
crash there is the old file or the new one, never half of either. A file that cannot be read is an
error for a human: guessing could found a second cluster.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from broker import feature_flags
from broker.durable_files import sync_folder

PLAIN_VERSION, IDENTITY_VERSION = 1, 2
"""The first is written while no feature flag is enabled, so that 0.2.0 still reads the file."""

FILE_NAME = "identity.json"


class IdentityDamaged(Exception):
    """The identity file exists and cannot be understood, or is another node's."""


class Promise(msgspec.Struct, array_like=True, frozen=True):
    """A word given to one founder: no other cluster is founded with this node's blank answer."""

    cluster_id: str
    founder: str


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The file's contents.

    Attributes:
        version: Of this format; `IdentityFile.save` sets it.
        node: Node name.
        cluster_id: The cluster this node belongs to; "" for none.
        is_founding: This node founds `cluster_id` and has not yet seen its first entry applied.
        is_forming: It helped to found `cluster_id` and has not yet let clients in: it waits for the
            other configured peers (`formation.members_needed`).
        promise: To whom it has promised its blank answer.
        abandoned: Cluster ids this node meant to found and has given up, newest last.
        boot: Boot id of its last start.
        members: The other members and their addresses, as last heard: a restarted node must know
            whom to let in before it can hear anything of group 0.
        lost: Members that an operator gave up on this node while it was stopped (`force_boot`),
            until group 0 has forgotten them: name -> `forcing.mark`.
        forced_from: The cluster's id before that.
        features: Feature flags by which this node's data is written: only a version that knows them
            can read it.
    """

    version: int = PLAIN_VERSION
    node: str
    cluster_id: str = ""
    is_founding: bool = False
    is_forming: bool = False
    promise: Promise | None = None
    abandoned: tuple[str, ...] = ()
    boot: str = ""
    members: dict[str, str] = {}
    lost: dict[str, str] = {}
    forced_from: str = ""
    features: tuple[str, ...] = ()


class IdentityFile:
    """The identity of the node that owns a folder.

    Args:
        folder: The node's data folder; made if it is missing.
        node: The node's name.

    Raises:
        IdentityDamaged: The file is there and unusable.
        OSError: The folder cannot be read.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self._path = folder / FILE_NAME
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.identity = self._load(node)

    def _load(self, node: str) -> Identity:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return Identity(node=node)
        try:
            identity = msgspec.json.decode(data, type=Identity)
        except ValueError as why:
            raise IdentityDamaged(
                f"{self._path} cannot be understood: {why}: put back a copy of it, or move the "
                "whole folder away and let the node join its cluster again"
            ) from why
        if identity.version > IDENTITY_VERSION:
            raise IdentityDamaged(
                f"{self._path} has version {identity.version}, this version of WarrenMQ reads "
                f"{IDENTITY_VERSION}: start the newer version that wrote it"
            )
        if identity.node != node:
            raise IdentityDamaged(
                f"{self._path} belongs to {identity.node}, not to {node}: start it under that "
                "name, or give this node a data directory of its own"
            )
        lacks = feature_flags.lacking(identity.features, feature_flags.KNOWN)
        if lacks:
            raise IdentityDamaged(
                f"the data of {node} was written with the feature flags {lacks}, which this "
                "version of WarrenMQ does not know: start the newer version that wrote it"
            )
        return identity

    def save(self, identity: Identity) -> None:
        """Make `identity` the one on disk; durable when this returns.

        Raises:
            OSError: It is not known to be durable: the node must stop.
        """
        version = IDENTITY_VERSION if identity.features else PLAIN_VERSION
        identity = msgspec.structs.replace(identity, version=version)
        data = msgspec.json.format(msgspec.json.encode(identity), indent=2)
        temporary = self._path.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(self._path)
        sync_folder(self._path.parent)
        self.identity = identity
