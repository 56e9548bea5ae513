"""Tags of events, declared on their fields: `course: Annotated[str, Tag]` gives the tag `course:chess`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any, get_args, get_origin
from uuid import UUID

from ..core.errors import InvalidEvent
from ..core.quoting import show
from .errors import InvalidDefinition

TagValue = str | int | UUID | Enum
"""The types of tag values: text, integers, UUIDs, and enumerations of text or integers."""


class Tag:
    """Marks a field whose value is a tag: `Annotated[str, Tag]`, or `Annotated[str, Tag("course")]` with that key.

    The default key is the name of the field. A list, tuple or set gives a tag for each value; None gives no tag.
    """

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        """Raises InvalidDefinition for a key that is empty or contains a colon, which separates key and value."""
        if not key or ":" in key:
            raise InvalidDefinition(f"a tag's key: expected text without a colon, got {show(key)}")
        self.key = key


def tag_keys(hints: Iterable[tuple[str, Any]], of: str) -> list[tuple[str, str]]:
    """The fields that are tags, each with its key. Raises InvalidDefinition for a misplaced Tag."""
    found = []
    for name, hint in hints:
        if get_origin(hint) is Annotated:
            _, *marks = get_args(hint)
            keys = [mark.key if isinstance(mark, Tag) else name for mark in marks if _is_tag(mark)]
            if len(keys) > 1:
                raise InvalidDefinition(f"{of}.{name}: expected at most one tag for a field, got {len(keys)}")
            found += [(name, key) for key in keys]
            hint = get_args(hint)[0]
        if _has_tag(hint):
            raise InvalidDefinition(f"{of}.{name}: Tag must annotate the whole field: Annotated[str | None, Tag]")
    return found


def _is_tag(mark: object) -> bool:
    return mark is Tag or isinstance(mark, Tag)


def _has_tag(hint: Any) -> bool:
    if get_origin(hint) is Annotated and any(map(_is_tag, get_args(hint)[1:])):
        return True
    return any(_has_tag(inner) for inner in get_args(hint) if not isinstance(inner, str))


def tags_of(key: str, value: object, where: str) -> list[str]:
    """The tags of a field's value. Raises InvalidEvent for anything except text, a number, a UUID or an enumeration."""
    if value is None:
        return []
    if isinstance(value, list | tuple | set | frozenset):
        return [f"{key}:{_text(each, where)}" for each in value]
    return [f"{key}:{_text(value, where)}"]


def tag_of(key: str, value: object) -> str:
    """The tag that a projection requests. Raises InvalidEvent."""
    return f"{key}:{value if value.__class__ is str else _text(value, f'tags[{key}]')}"


def _text(value: object, where: str) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return value
    if (isinstance(value, int) and not isinstance(value, bool)) or isinstance(value, UUID):
        return str(value)
    raise InvalidEvent(f"a tag: expected a str, int, UUID or an Enum of these, got {show(value)}", where)
