"""A number for each `msg_id`, and for other names that come again and again."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

SEQ_BITS: Final = 40
_DIGITS_MAX: Final = 12
"""10^12 is below 2^40."""
HEAD_BITS: Final = 18
"""262,144 publishers; what comes after them is odd."""
ODD: Final = -1
"""Instead of a key. Rows of all odd messages have it, as if they were one."""
BETWEEN: Final = "|"
"""Between publisher and number in a `msg_id`."""


_Name = TypeVar("_Name", bound=Hashable)


class Names(Generic[_Name]):
    """Texts or tuples -> 0, 1, 2 and so on, in the order in which they come. For many threads."""

    def __init__(self, most: int | None = None) -> None:
        """Begin with none.

        Args:
            most: So many names get a code.
        """
        self._codes: dict[_Name, int] = {}
        self._most = most
        self._lock = threading.Lock()

    def codes(self, names: Iterable[_Name]) -> list[int | None]:
        """The code of each name; None for those that came when all codes were given."""
        with self._lock:
            return [self._code(name) for name in names]

    def all(self) -> list[_Name]:
        """Names by their code."""
        with self._lock:
            return list(self._codes)

    def _code(self, name: _Name) -> int | None:
        code = self._codes.get(name)
        if code is None and (self._most is None or len(self._codes) < self._most):
            code = self._codes[name] = len(self._codes)
        return code


def publishers() -> Names[str]:
    """For `keys_of`."""
    return Names(1 << HEAD_BITS)


def keys_of(ids: pa.Array, heads: Names[str]) -> pa.Array:
    """A number for each `msg_id`; null for an odd one.

    A `msg_id` that is a text, "|" and a number as `str` writes it, has the text's code and the
    number as its key. So two that differ have two keys, and those of one have one.

    Args:
        ids: Texts, none null.
        heads: The publishers that are known; those of `ids` are added.
    """
    halves = pc.split_pattern(ids, BETWEEN, max_splits=1, reverse=True)
    is_two = pc.equal(pc.list_value_length(halves), 2)
    if not pc.all(is_two).as_py():
        whole = pc.if_else(is_two, ids, BETWEEN)
        halves = pc.split_pattern(whole, BETWEEN, max_splits=1, reverse=True)
    digits = pc.list_element(halves, 1)
    length = pc.binary_length(digits)
    is_short = pc.less_equal(length, _DIGITS_MAX)
    is_plain = pc.or_(pc.equal(length, 1), pc.invert(pc.starts_with(digits, "0")))
    is_number = pc.and_(pc.ascii_is_decimal(digits), pc.and_(is_short, is_plain))
    numbers = pc.cast(pc.if_else(is_number, digits, "0"), pa.int64())
    head = pc.if_else(is_number, pc.list_element(halves, 0), "").dictionary_encode()
    codes = pa.array(heads.codes(head.dictionary.to_pylist()), pa.int64()).take(head.indices)
    keys = pc.add(pc.shift_left(codes, SEQ_BITS), numbers)
    return pc.if_else(is_number, keys, pa.scalar(None, pa.int64()))


def head_of(keys: pa.Array) -> pa.Array:
    """The code of each key's publisher."""
    return pc.shift_right(keys, SEQ_BITS)


def seq_of(keys: pa.Array) -> pa.Array:
    """Each key's number."""
    return pc.bit_wise_and(keys, (1 << SEQ_BITS) - 1)
