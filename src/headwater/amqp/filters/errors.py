"""What is wrong with a source filter, and how much of one is taken."""

from __future__ import annotations

from dataclasses import dataclass


class InvalidFilter(ValueError):
    """A source filter breaks its grammar, or a limit; on the wire `amqp:invalid-field`.

    `filter_name` is its key in the filter map, `position` the character (from 1) where its text goes wrong, or None
    where the filter is not a text.
    """

    def __init__(self, filter_name: str, problem: str, position: int | None = None) -> None:
        self.filter_name = filter_name
        self.problem = problem
        self.position = position
        where = "" if position is None else f", character {position}"
        super().__init__(f"filter {filter_name!r}{where}: {problem}")


TEXT_CHARS_MAX = 16_384
"""The longest text of a message that LIKE, LOWER and UPPER look at, and the longest that + makes."""


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """How much the filters of a source may ask for (FILTEX 7): what a peer sends is bounded in every direction."""

    expression_chars_max: int = 4096
    terms_max: int = 1000
    """Words and signs of expressions, fields of property filters, members of groups, of all filters together."""
    searches_max: int = 16
    """Patterns of LIKE, in all filters together, that look for a `_` between two `%`: what costs most."""
    depth_max: int = 32
    """How deep parentheses, NOT, signs, function calls and groups nest, all together."""
    list_items_max: int = 256
    """Members of an IN list, of a group, fields of one property filter, entries of the filter map."""
    query_chars_max: int = 65_536
    """Characters of a DCB query."""


DEFAULT_LIMITS = FilterLimits()
