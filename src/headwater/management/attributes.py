"""Attributes as data: what the values of one are, and what they mean, of notifications and of entities alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Kind(StrEnum):
    """What the values of an attribute are."""

    STRING = "string"
    LONG = "long"
    TIMESTAMP = "timestamp"
    """ms since 1970 UTC, as a whole number where there is no type for it."""
    BOOLEAN = "boolean"
    STRINGS = "list of strings"
    MAP = "map"
    """Of strings to strings or longs. Read only."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a type."""

    name: str
    kind: Kind
    meaning: str

    @classmethod
    def text(cls, name: str, meaning: str, **more: bool) -> Self:
        """One whose values are strings; `more` are fields of the class that has them."""
        return cls(name, Kind.STRING, meaning, **more)

    @classmethod
    def number(cls, name: str, meaning: str, **more: bool) -> Self:
        """One whose values are whole numbers; `more` as above."""
        return cls(name, Kind.LONG, meaning, **more)

    @classmethod
    def flag(cls, name: str, meaning: str, **more: bool) -> Self:
        """One whose values are true or false; `more` as above."""
        return cls(name, Kind.BOOLEAN, meaning, **more)

    @classmethod
    def timestamp(cls, name: str, meaning: str) -> Self:
        """One whose values are times."""
        return cls(name, Kind.TIMESTAMP, meaning)
