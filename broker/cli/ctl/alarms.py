"""The commands `set_vm_memory_high_watermark` and `set_disk_free_limit`; `table` has their usage.

Source: set_vm_memory_high_watermark_command.ex, set_disk_free_limit_command.ex (texts).
"""

from __future__ import annotations

import re
from typing import Any

from broker.cli.ctl.api import EXIT_USAGE, Api, UsageError
from broker.cli.ctl.arguments import Invocation

_MEMORY = "/api/node/vm_memory_high_watermark"
_DISK = "/api/node/disk_free_limit"
_SIZE = re.compile(r"[0-9]+([kmgt]?i?b?)", re.IGNORECASE | re.ASCII)
_FRACTION = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)


def _check_size(size: str) -> None:
    if _SIZE.fullmatch(size) is None:
        wanted = "a number of bytes, or one with a unit: 1GB (10^9), 1GiB or 1G (2^30)"
        raise UsageError(f"'{size}' is no size: it has to be {wanted}")


def check_memory(call: Invocation) -> None:
    """FRACTION, or `absolute` SIZE."""
    first, *rest = call.arguments
    if first == "absolute":
        if not rest:
            raise UsageError("not enough arguments: absolute needs a size")
        _check_size(rest[0])
    elif rest:
        raise UsageError("too many arguments")
    elif _FRACTION.fullmatch(first) is None or float(first) > 1:
        raise UsageError("The threshold should be a fraction between 0.0 and 1.0")


def memory_banner(call: Invocation) -> str:
    """In rabbitmqctl's words."""
    first, *rest = call.arguments
    unit = f"{rest[0]} bytes" if rest else first
    return f"Setting memory threshold on {{node}} to {unit} ..."


def set_memory(api: Api, call: Invocation) -> str | None:
    """Put another memory watermark in force on the node."""
    first, *rest = call.arguments
    body: dict[str, Any] = {"absolute": rest[0]} if rest else {"relative": float(first)}
    api.ask("POST", _MEMORY, body, refused=EXIT_USAGE)
    return None


def check_disk(call: Invocation) -> None:
    """SIZE, or `mem_relative` FRACTION."""
    first, *rest = call.arguments
    if first == "mem_relative":
        if not rest:
            raise UsageError("not enough arguments: mem_relative needs a number")
        check_times(rest[0])
    elif rest:
        raise UsageError("too many arguments")
    else:
        _check_size(first)


def check_times(times: str) -> None:
    """Refuse what is no number of at least 0."""
    if _FRACTION.fullmatch(times) is None:
        raise UsageError(f"'{times}' is no number such as 1.5")


def disk_banner(call: Invocation) -> str:
    """In rabbitmqctl's words."""
    first, *rest = call.arguments
    unit = f"{rest[0]} times the total RAM" if rest else f"{first} bytes"
    return f"Setting disk free limit on {{node}} to {unit} ..."


def set_disk(api: Api, call: Invocation) -> str | None:
    """Put another limit of free disk space in force on the node."""
    first, *rest = call.arguments
    body: dict[str, Any] = {"mem_relative": float(rest[0])} if rest else {"absolute": first}
    api.ask("POST", _DISK, body, refused=EXIT_USAGE)
    return None


def set_disk_relative(api: Api, call: Invocation) -> str | None:
    """The older spelling of `set_disk_free_limit mem_relative`."""
    api.ask("POST", _DISK, {"mem_relative": float(call.arguments[0])}, refused=EXIT_USAGE)
    return None
