"""The cluster's settings, made from the operator's configuration."""

from __future__ import annotations

import resource
import secrets
from pathlib import Path

from broker import feature_flags
from broker.cluster.authentication.link_certificates import LinkCertificates
from broker.cluster.authentication.secret import effective_listener
from broker.cluster.membership import ClusterSettings
from broker.cluster.outbound import LinkLimits
from broker.config import Settings
from broker.doors.descriptors import shares
from broker.metadata.commands import Bootstrap
from broker.passwords import HASHINGS, hash_password


def cluster_settings(
    settings: Settings,
    secret: bytes,
    tls: LinkCertificates | None,
    peers: dict[str, str],
    *,
    joins_only: bool,
) -> ClusterSettings:
    """The cluster's part of a node's settings.

    Args:
        settings: All of them.
        secret: The cluster's, or the node's own (`authentication.secret.effective_secret`).
        tls: Certificates for links; None: they have no TLS.
        peers: Whom to found or join a cluster with, name -> "host:port".
        joins_only: As in `ClusterSettings`.
    """
    listener = effective_listener(settings)
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    founding = Bootstrap(
        cluster_id="",
        cluster_name=settings.cluster_name or settings.node_name,
        nodes=(),
        vhost="" if settings.definitions_paths else settings.default_vhost,
        user="" if settings.definitions_paths else settings.default_user,
        password_hash=hash_password(
            settings.default_password,
            secrets.token_bytes(HASHINGS[settings.password_hashing].salt_bytes),
            settings.password_hashing,
        ),
        hashing_algorithm=settings.password_hashing,
        tags=settings.default_user_tags,
        permissions=settings.default_permissions,
        features=tuple(sorted(feature_flags.KNOWN)),
    )
    return ClusterSettings(
        node=settings.node_name,
        listen=f"{listener.host or '[::]'}:{listener.port}",
        peers=peers,
        secret=secret,
        tls=tls,
        folder=Path(settings.data_dir),
        founding=founding,
        advertised=_advertised(settings),
        limits=LinkLimits(strangers=shares(files_max).strangers),
        joins_only=joins_only,
        formation_timeout_ms=settings.cluster_formation_timeout_ms,
    )


def _advertised(settings: Settings) -> str:
    """Return the address at which others reach this node; "" if it is the one listened on."""
    own = settings.peer_address(settings.node_name)
    if own is not None:
        return f"{own[0]}:{own[1]}"
    listener = settings.inter_node_listener()
    is_one_host = listener.host and listener.host not in {"0.0.0.0", "::", "*"}  # noqa: S104 - only compared
    if not listener.port or is_one_host:
        return ""
    return f"{settings.node_name.partition('@')[2]}:{listener.port}"
