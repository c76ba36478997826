"""Readers of configured values: each turns a text into what it says. Pure.

The `ValueError` of a text that does not fit completes the sentence "KEY must be ...".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from broker.config import Listener
from broker.passwords import PASSWORD_RULES
from broker.patterns import pattern_fault

_PORT_MAX = 65_535
_INTERVAL_MS_MIN = 100
_SIZE = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)
_UNITS = {
    "": 1,
    "b": 1,
    "k": 1024,
    "kib": 1024,
    "kb": 1000,
    "ki": 1024,
    "m": 1024**2,
    "mib": 1024**2,
    "mb": 1000**2,
    "mi": 1024**2,
    "g": 1024**3,
    "gib": 1024**3,
    "gb": 1000**3,
    "gi": 1024**3,
    "t": 1024**4,
    "tib": 1024**4,
    "tb": 1000**4,
    "ti": 1024**4,
    "p": 1024**5,
    "pib": 1024**5,
    "pb": 1000**5,
    "pi": 1024**5,
}

_DURATIONS_MS = {
    "f": 14 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|[fwdhms])")
_DURATION = re.compile(f"(?:{_SPAN.pattern})+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE)
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency", "none")
_OUR_LEVELS = {"notice": "info", "critical": "error", "alert": "error", "emergency": "error"}


def size_bytes(text: str) -> int:
    """Read a size: "50mb", "2GB" (decimal), "500MiB", "500M" (binary), plain bytes.

    Args:
        text: The value as written.

    Raises:
        ValueError: It is no size.

    Source:
        RabbitMQ's "Information units": KB/MB/GB are powers of ten, KiB/k powers of two.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("a size such as 104857600, 50mb, 2GB or 500MiB")
    return int(match[1]) * _UNITS[match[2].lower()]


def binary_size(text: str) -> int:
    """RabbitMQ's other kind of size, of few keys: KB, MB and GB are powers of two there."""
    number = text.lower().removesuffix("b")
    return size_bytes(number if number[-1:] in ("k", "m", "g") else text)


def integer(text: str) -> int:
    """An integer."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("an integer") from None


def natural(text: str) -> int:
    """An integer of at least 0."""
    value = integer(text)
    if value < 0:
        raise ValueError("an integer of at least 0")
    return value


def interval(text: str) -> int:
    """Milliseconds between two times of a periodic work."""
    value = integer(text)
    if value < _INTERVAL_MS_MIN:
        raise ValueError(f"milliseconds, at least {_INTERVAL_MS_MIN}")
    return value


def unlimited(text: str) -> int | None:
    """A limit, None without one; 0 is a limit."""
    return None if text in ("infinity", "unlimited", "undefined", "false", "-1") else natural(text)


def limit(text: str) -> int | None:
    """A limit of at least 1, None for `infinity`."""
    if text == "infinity":
        return None
    value = integer(text)
    if value < 1:
        raise ValueError("an integer of at least 1, or infinity")
    return value


def positive(text: str) -> int:
    """An integer of at least 1."""
    value = integer(text)
    if value < 1:
        raise ValueError("an integer of at least 1")
    return value


def duration_ms(text: str) -> int:
    """Milliseconds, plain or as `1d12h`, `90m`, `1.5s`, `100ms`.

    Source:
        cuttlefish_duration.erl.
    """
    if text.isdigit():
        return int(text)
    if _DURATION.fullmatch(text) is None:
        raise ValueError("a duration such as 60000, 90m, 1d12h or 100ms")
    return round(sum(float(each[1]) * _DURATIONS_MS[each[2]] for each in _SPAN.finditer(text)))


def words(text: str) -> list[str]:
    """A list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def ratio(text: str) -> float:
    """A number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number such as 0.4") from None
    if not 0 <= value < math.inf:
        raise ValueError("a number of at least 0")
    return value


def fraction(text: str) -> float:
    """A number above 0 and below 1."""
    value = ratio(text)
    if not 0 < value < 1:
        raise ValueError("a number above 0 and below 1")
    return value


def flag(text: str) -> bool:
    """True or false, by any of their names."""
    if text in ("true", "on", "yes"):
        return True
    if text in ("false", "off", "no"):
        return False
    raise ValueError("true or false")


def port(text: str) -> int:
    """A TCP port; 0 lets the system choose."""
    value = natural(text)
    if value > _PORT_MAX:
        raise ValueError("a port from 0 to 65535")
    return value


def port_or_none(text: str) -> int | None:
    """A TCP port, None for `none`: nothing listens."""
    return None if text == "none" else port(text)


def listener(text: str) -> Listener:
    """Read `5672`, `127.0.0.1:5672`, `[::1]:5672` or `:::5672`.

    Args:
        text: The value as written.

    Raises:
        ValueError: It is none of these.
    """
    host, separator, number = text.rpartition(":")
    if not separator:
        return Listener("", port(text))
    return Listener(host.removeprefix("[").removesuffix("]"), port(number))


def one_of(*words: str) -> Callable[[str], str]:
    """Make a reader of one of some words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError("one of " + ", ".join(words))
        return text

    return read


def path_prefix(text: str) -> str:
    """A prefix of paths with one slash before it, "" for none."""
    return "/" + text.strip("/") if text.strip("/") else ""


def password_hashing(text: str) -> str:
    """The name of an algorithm for new passwords."""
    return one_of(
        "rabbit_password_hashing_sha256",
        "rabbit_password_hashing_sha512",
        "rabbit_password_hashing_md5",
        "warrenmq_password_hashing_scrypt",
    )(text)


def password_rule(text: str) -> str:
    """The rule for new passwords that a module of RabbitMQ stands for."""
    name = text.removeprefix("rabbit_credential_validator_")
    if name not in PASSWORD_RULES:
        raise ValueError(
            "one of " + ", ".join(f"rabbit_credential_validator_{each}" for each in PASSWORD_RULES)
        )
    return name


def pattern(text: str) -> str:
    """A regular expression that RE2 takes."""
    fault = pattern_fault(text)
    if fault is not None:
        raise ValueError(f"a regular expression that RE2 takes ({fault})")
    return text


def queue_type(text: str) -> str:
    """Either `quorum` or `rabbit_quorum_queue`, its module."""
    return one_of("classic", "quorum", "stream")(
        text.removeprefix("rabbit_").removesuffix("_queue")
    )


def level(text: str) -> str:
    """A level's name; "<=notice" and the like of `log.file.level` are read as the level they name.

    Raises:
        ValueError: It names none.
    """
    name = one_of(*_LEVELS)(text.lstrip("<=!"))
    return _OUR_LEVELS.get(name, name)


def origin(text: str) -> str:
    """Check an origin as browsers send it, without a path, or `*`."""
    if text != "*" and _ORIGIN.fullmatch(text) is None:
        raise ValueError("an origin such as https://app.example:8443, or *")
    return text.lower()


def https_url(text: str) -> str:
    """Check that a URL speaks HTTPS to a host."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError("an https:// URL")
    return text


def header_value(text: str) -> str:
    """The value of an HTTP header."""
    if not text.isascii() or not text.isprintable():
        raise ValueError("printable ASCII")
    return text


def peer_address(text: str) -> Listener:
    """The address of another node."""
    host, _, number = text.rpartition(":")
    if not host or not number.isdigit() or not 0 < int(number) <= _PORT_MAX:
        raise ValueError("HOST:PORT")
    return listener(text)
