"""Memory use of decoded values: up to 64 times their encoded size."""

from __future__ import annotations

from sys import getsizeof

from .composite import Composite
from .types import Described


def held_bytes(value: object) -> int:
    """The memory that a decoded value uses, including its contents. Shared values are counted each time."""
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
