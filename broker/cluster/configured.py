"""What an operator set, as the cluster needs it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from broker.cluster.membership import ClusterSettings
from broker.config import Settings
from broker.metadata.access import hash_password
from broker.metadata.commands import Bootstrap

_SALT_BYTES: Final = 4


def cluster_settings(
    settings: Settings, peers: dict[str, str], *, joins_only: bool
) -> ClusterSettings:
    """The cluster's part of a node's settings.

    Args:
        settings: All of them.
        peers: Whom to found or join a cluster with, name -> "host:port".
        joins_only: As in `ClusterSettings`.
    """
    listener = settings.inter_node_listener()
    founding = Bootstrap(
        cluster_id="",
        cluster_name=settings.cluster_name or settings.node_name,
        nodes=(),
        vhost=settings.default_vhost,
        user=settings.default_user,
        password_hash=hash_password(settings.default_password, secrets.token_bytes(_SALT_BYTES)),
        tags=settings.default_user_tags,
        permissions=settings.default_permissions,
    )
    return ClusterSettings(
        node=settings.node_name,
        listen=f"{listener.host or '[::]'}:{listener.port}",
        peers=peers,
        secret=settings.cluster_secret.encode(),
        folder=Path(settings.data_dir),
        founding=founding,
        advertised=_advertised(settings),
        joins_only=joins_only,
    )


def _advertised(settings: Settings) -> str:
    """Where others reach this node: "" where the address listened on says it."""
    own = settings.peer_address(settings.node_name)
    if own is not None:
        return f"{own[0]}:{own[1]}"
    listener = settings.inter_node_listener()
    is_one_host = listener.host and listener.host not in {"0.0.0.0", "::", "*"}  # noqa: S104 - only compared
    if not listener.port or is_one_host:
        return ""
    return f"{settings.node_name.partition('@')[2]}:{listener.port}"
