"""Checks whether a decoded value has a type of an interface definition (FTN3 1.9, 2.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Check = Callable[[object], bool]


class Elements(NamedTuple):
    """The rules for the elements of an array type, and their number."""

    check: Check
    at_least: int
    at_most: int


class TypeTable:
    """The types of one definition, including the standard types."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._checks: dict[str, Check] = {}

    def check(self, name: str) -> Check:
        """The check for a type, by name."""
        if name in _STANDARD:
            return _STANDARD[name]
        if name not in self._checks:
            self._checks[name] = self._compiled(self._types[name])
        return self._checks[name]

    def standard_type(self, name: str) -> str:
        """The standard type that a type is derived from."""
        while name not in _STANDARD:
            given = self._types[name]
            name = given if isinstance(given, str) else given["type"]
        return name

    def elements(self, name: str) -> Elements | None:
        """The rules for the elements of an array type, if it bounds their number."""
        given = self._types.get(name)
        if not isinstance(given, dict) or not given.keys() >= {"elemtype", "maxlen"}:
            return None
        return Elements(self.check(given["elemtype"]), given.get("minlen", 0), given["maxlen"])

    def _compiled(self, given: Any) -> Check:
        if isinstance(given, str):
            return self.check(given)
        is_of_parent = self.check(given["type"])
        further = list(self._constraints(given))
        if len(further) == 1:
            (is_fit,) = further
            return lambda value: is_of_parent(value) and is_fit(value)
        return lambda value: is_of_parent(value) and all(check(value) for check in further)

    def _constraints(self, given: Mapping[str, Any]) -> list[Callable[[Any], bool]]:
        checks: list[Callable[[Any], bool]] = []
        if "regex" in given:
            checks.append(_matching(given["regex"]))
        if "min" in given:
            checks.append(lambda value: value >= given["min"])
        if "max" in given:
            checks.append(lambda value: value <= given["max"])
        if "minlen" in given:
            checks.append(lambda value: len(value) >= given["minlen"])
        if "maxlen" in given:
            checks.append(lambda value: len(value) <= given["maxlen"])
        if "elemtype" in given:
            checks.append(_each(self.check(given["elemtype"])))
        if "fields" in given:
            checks.append(self._with_fields(given["fields"]))
        return checks

    def _with_fields(self, fields: Mapping[str, Any]) -> Callable[[Any], bool]:
        expected = [(name, *self._field(given)) for name, given in fields.items()]

        def check(value: Any) -> bool:
            return not value.keys() - fields.keys() and all(
                is_fit(value[name]) or (is_optional and value[name] is None) if name in value else is_optional
                for name, is_fit, is_optional in expected
            )

        return check

    def _field(self, given: Any) -> tuple[Check, bool]:
        if isinstance(given, str):
            return self.check(given), False
        return self.check(given["type"]), bool(given.get("optional"))


def _matching(regex: str) -> Callable[[Any], bool]:
    """JavaScript's `$` matches only the end of the text; Python's also matches before a final line break."""
    expression = re.compile(regex.removesuffix("$"), re.ASCII)
    search = expression.fullmatch if regex.startswith("^") and regex.endswith("$") else re.compile(regex).search
    return lambda value: search(value) is not None


def _each(check: Check) -> Callable[[Any], bool]:
    return lambda value: all(map(check, value))


def _is_integer(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


_STANDARD: Mapping[str, Check] = {
    "any": lambda value: True,
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "map": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}
"""The standard types that our definitions use; `enum`, `set` and `data` are not among them."""
