"""Attributes as data: value types and meanings, for both notifications and entities."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Kind(StrEnum):
    """The value type of an attribute."""

    STRING = "string"
    LONG = "long"
    TIMESTAMP = "timestamp"
    """ms since 1970 UTC; a whole number in formats without a timestamp type."""
    BOOLEAN = "boolean"
    STRINGS = "list of strings"
    MAP = "map"
    """Maps strings to strings or longs. Read only."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a type."""

    name: str
    kind: Kind
    meaning: str

    @classmethod
    def text(cls, name: str, meaning: str, **more: bool) -> Self:
        """An attribute with string values; `more` are fields of the subclass that defines them."""
        return cls(name, Kind.STRING, meaning, **more)

    @classmethod
    def number(cls, name: str, meaning: str, **more: bool) -> Self:
        """An attribute with whole numbers; `more` is as above."""
        return cls(name, Kind.LONG, meaning, **more)

    @classmethod
    def flag(cls, name: str, meaning: str, **more: bool) -> Self:
        """An attribute with booleans; `more` is as above."""
        return cls(name, Kind.BOOLEAN, meaning, **more)

    @classmethod
    def timestamp(cls, name: str, meaning: str) -> Self:
        """An attribute with timestamps."""
        return cls(name, Kind.TIMESTAMP, meaning)
