"""Numbers and lists as people read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def lasting(ms: int) -> str:
    """A duration in its two largest units: "3 min 12 s"; below a second in milliseconds.

    Args:
        ms: Milliseconds.
    """
    if ms < _UNITS[-1][0]:
        return f"{max(0, ms)} ms"
    parts: list[str] = []
    for size, unit in _UNITS:
        if ms >= size or parts:
            number, ms = divmod(ms, size)
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == 2:  # noqa: PLR2004  two units are enough
            break
    return " ".join(part for part in parts if part)


def counted(number: int, what: str, *, bare: bool = False) -> str:
    """A number of things: "1 message", "48,210 messages".

    Args:
        number: How many.
        what: One of them.
        bare: Leave the number out.
    """
    things = what if number == 1 else f"{what}s"
    return things if bare else f"{number:,} {things}"


def amount(size_bytes: int) -> str:
    """Bytes in the unit that leaves one to three digits."""
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004  the step between units
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 10 else f"{size:.1f} {unit}"  # noqa: PLR2004
        size /= 1000
    return f"{size:.1f} TB"


def per_second(rate: float) -> str:
    """A rate: "415/s"."""
    return f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.1f}/s"  # noqa: PLR2004


def joined(names: Sequence[str]) -> str:
    """Names as in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
