"""One object of a definitions document, read field by field; a wrong field is an `ItemFault`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

NAME_BYTES_MAX: Final = 255
"""What a short string of AMQP holds."""

TAGS_MAX: Final = 32
_SHOWN_MAX: Final = 80


class ItemFault(Exception):
    """An object that can't be imported.

    Args:
        text: What is wrong and what to do, without the place in the document.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def shown(value: object) -> str:
    """A value for an error, as the document has it, cut off after some characters."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


class Fields:
    """The fields of one object.

    Args:
        item: The object.

    Attributes:
        item: As given.
    """

    def __init__(self, item: Mapping[str, object]) -> None:
        self.item = item

    @classmethod
    def of(cls, item: object) -> Fields:
        """The fields of what should be an object.

        Raises:
            ItemFault: It is none.
        """
        if not isinstance(item, dict):
            raise ItemFault(f"must be an object, found {shown(item)}")
        return cls(item)

    def has(self, key: str) -> bool:
        """True if the object has the field."""
        return key in self.item

    def text(self, key: str, default: str | None = None) -> str:
        """A string; without a default it must be there.

        Raises:
            ItemFault: It is missing, or no string.
        """
        value = self.item.get(key, default)
        if value is None:
            raise ItemFault(f"{key} is missing")
        if not isinstance(value, str):
            raise ItemFault(f"{key} must be a string, found {shown(value)}")
        return value

    def name(self, key: str, *, least: int = 0) -> str:
        """A name: a string of at most 255 bytes.

        Args:
            key: The field; it must be there.
            least: Fewest bytes.

        Raises:
            ItemFault: It is none.
        """
        value = self.text(key)
        if not least <= len(value.encode()) <= NAME_BYTES_MAX:
            raise ItemFault(f"{key} must have {least} to {NAME_BYTES_MAX} bytes")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean.

        Raises:
            ItemFault: It is none.
        """
        value = self.item.get(key, default)
        if not isinstance(value, bool):
            raise ItemFault(f"{key} must be true or false, found {shown(value)}")
        return value

    def table(self, key: str) -> dict[str, object]:
        """An object; {} where it is missing. Old files have [] for {}.

        Raises:
            ItemFault: It is none.
        """
        value = self.item.get(key, {})
        if value == []:
            return {}
        if not isinstance(value, dict):
            raise ItemFault(f"{key} must be an object, found {shown(value)}")
        return value

    def labels(self, key: str) -> tuple[str, ...]:
        """Tags: a list of strings, or one string with commas as old files have it.

        Raises:
            ItemFault: It is neither, or has more than 32 entries.
        """
        value = self.item.get(key, "")
        words = value.split(",") if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ItemFault(f"{key} must be a list of strings, found {shown(value)}")
        found = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
        if len(found) > TAGS_MAX:
            raise ItemFault(f"{key} has {len(found)} entries; the most is {TAGS_MAX}")
        return found

    def value(self, key: str) -> object:
        """Any JSON value.

        Raises:
            ItemFault: It is missing.
        """
        if key not in self.item:
            raise ItemFault(f"{key} is missing")
        return self.item[key]
