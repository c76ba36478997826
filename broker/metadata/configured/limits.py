"""Limits of the whole cluster that the node which is asked checks, as RabbitMQ does. Pure.

Several nodes that are asked at once may exceed one by as many.
"""

from __future__ import annotations

from broker.errors import Refusal, ReplyCode
from broker.metadata.catalogue import Catalogue


def vhost_refusal(catalogue: Catalogue, name: str, limit: int | None) -> Refusal | None:
    """Return why a vhost may not be added; None if it may, or is there.

    Args:
        catalogue: Of group 0.
        name: The vhost's.
        limit: `vhost_max`, None without limit.

    Source:
        rabbit_vhost.erl, is_over_vhost_limit/2.
    """
    if limit is None or catalogue.vhost(name) is not None or len(catalogue.vhosts()) < limit:
        return None
    text = f"cannot create vhost '{name}': vhost limit of {limit} is reached"
    return Refusal(ReplyCode.PRECONDITION_FAILED, text)


def exchange_refusal(
    catalogue: Catalogue, vhost: str, name: str, limit: int | None
) -> Refusal | None:
    """Return why an exchange may not be declared; None if it may, or is there.

    Args:
        catalogue: Of group 0.
        vhost: The exchange's.
        name: Its name.
        limit: `cluster_exchange_limit`, None without limit.

    Source:
        The 406 of RabbitMQ 4.1; 3.13 has the key's siblings only.
    """
    if limit is None or catalogue.exchange(vhost, name) is not None:
        return None
    if catalogue.exchange_count() < limit:
        return None
    text = f"cannot declare exchange '{name}' in vhost '{vhost}': "
    return Refusal(ReplyCode.PRECONDITION_FAILED, f"{text}exchange limit of {limit} is reached")
