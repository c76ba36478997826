"""Messages of syslog, as RFC 3164 and RFC 5424 write them. Pure.

Over TCP and TLS messages of RFC 5424 begin with their length, those of RFC 3164 end with a newline
(RFC 6587, 3.4.1 and 3.4.2).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

_SYSTEM: Final = (
    "kern,user,mail,daemon,auth,syslog,lpr,news,uucp,cron,authpriv,ftp,ntp,audit,alert,clock"
)
_LOCAL: Final = tuple(f"local{number}" for number in range(8))
FACILITIES: Final = {name: number for number, name in enumerate((*_SYSTEM.split(","), *_LOCAL))}
"""Names of facilities and their numbers (RFC 5424, 6.2.1)."""

DATAGRAM_BYTES_MAX: Final = 8_192
"""A datagram's text is cut there: receivers need take no more than 2,048 (RFC 5424, 6.1)."""

_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"


class Sender(NamedTuple):
    """What all messages of a process have in common.

    Attributes:
        host: The machine.
        identity: The program.
        process: Its id.
        facility: A number of `FACILITIES`.
    """

    host: str
    identity: str
    process: int
    facility: int


def rfc3164(sender: Sender, severity: int, at: datetime, text: str) -> bytes:
    """Write a message of BSD syslog.

    Args:
        sender: Who.
        severity: 3 is an error, 4 a warning, 6 information, 7 for debugging.
        at: When, in local time.
        text: One line.
    """
    month = _MONTHS[3 * at.month - 3 : 3 * at.month]  # English in every locale
    time = f"{month} {at.day:2d} {at:%H:%M:%S}"
    tag = f"{sender.identity}[{sender.process}]"
    return f"<{sender.facility * 8 + severity}>{time} {sender.host} {tag}: {text}".encode()


def rfc5424(sender: Sender, severity: int, at: datetime, text: str) -> bytes:
    """Write a message of today's syslog.

    Args:
        sender: Who.
        severity: As for `rfc3164`.
        at: When, with a zone.
        text: One line.
    """
    time = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    header = f"<{sender.facility * 8 + severity}>1 {time} {sender.host} {sender.identity}"
    return f"{header} {sender.process} - - {text}".encode()


def framed(message: bytes, *, is_counted: bool) -> bytes:
    """Delimit a message on a stream.

    Args:
        message: Without a newline.
        is_counted: Its length comes first.
    """
    return b"%d %s" % (len(message), message) if is_counted else message + b"\n"


def datagram(message: bytes) -> bytes:
    """Cut a message for UDP, at the end of a character."""
    if len(message) <= DATAGRAM_BYTES_MAX:
        return message
    return message[:DATAGRAM_BYTES_MAX].decode(errors="ignore").encode()
