"""How much memory decoded values take: up to 64 times the bytes in which they came."""

from __future__ import annotations

from sys import getsizeof

from .composite import Composite
from .types import Described


def held_bytes(value: object) -> int:
    """What a decoded value takes, with all that is in it. What several share counts each time."""
    size, rest = 0, [value]
    while rest:
        value = rest.pop()
        size += getsizeof(value)
        if isinstance(value, list | tuple):
            rest += value
        elif isinstance(value, dict):
            rest += value
            rest += value.values()
        elif isinstance(value, Described):
            rest += (value.descriptor, value.value)
        elif isinstance(value, Composite):
            rest += [given for field in value.FIELDS if (given := getattr(value, field.name)) is not None]
    return size
