"""FTN3 interface definitions: loaded from `interfaces/` and compiled into checks of requests.

A definition is the JSON of the standard (FTN3 1.9, 2). Imports and inheritance are resolved once; `find` returns the
function that a request names, and `Function.check` checks its parameters.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ...core.limits import show
from ..errors import FutoInError, invalid, not_supported, unknown_interface
from .message import Encoded
from .types import Check, Elements, TypeTable

MESSAGE_BYTES_MAX = 64 * 1024
"""The default size limit of a request or reply (FTN3, 1.8)."""
_UNITS = {"B": 1, "K": 2**10, "M": 2**20}
_SUFFIX = "-iface.json"

SERVED = (
    "futoin.evt.gen:1.0",
    "futoin.evt.gen:1.1",
    "futoin.evt.poll:1.0",
    "futoin.evt.poll:1.1",
    "futoin.evt.push:1.0",
    "futoin.evt.push:1.1",
    "headwater.evt.gen:1.0",
    "headwater.evt.gen:1.1",
    "headwater.evt.poll:1.0",
    "headwater.evt.poll:1.1",
)
"""The interfaces that a peer may call. The other definitions are only imported, or implemented by the peer (the
receiver)."""


class Parameter(NamedTuple):
    """One parameter of a function."""

    check: Check
    is_text: bool
    """Whether it is a string, which a query string holds unquoted (FTN5, 3.3)."""
    is_required: bool
    default: object
    elements: Elements | None
    """The rules for the elements of an array."""


class Function(NamedTuple):
    """One function of one version of an interface."""

    name: str
    """The name as in `f`: interface, version and function."""
    key: tuple[str, str]
    """The key of its handler: the interface's name without version, and the function's."""
    version: tuple[int, int]
    parameters: Mapping[str, Parameter]
    throws: frozenset[str]
    request_bytes_max: int
    reply_bytes_max: int
    requires: frozenset[str]
    any_parameters: frozenset[str]
    """Parameters that may hold any JSON, passed on as JSON text."""

    encoded_parameters: frozenset[str]
    """Parameters that may be too long to decode at once; their decoder checks them."""

    is_traced: bool
    """Whether the events in its result name their trace."""

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters with defaults filled in; Encoded ones are not checked. Raises FutoInError (InvalidRequest)."""
        parameters = self.parameters
        taken = dict(given)
        for name in given:
            if name not in parameters:
                raise invalid(f"Unknown parameter: {self.name}({show(name)})")
        for name, parameter in parameters.items():
            if name not in taken:
                if parameter.is_required:
                    raise invalid(f"Missing parameter: {self.name}({name})")
                taken[name] = parameter.default
            elif taken[name].__class__ is Encoded:
                continue
            elif not parameter.check(taken[name]) and not self._is_default_null(parameter, taken[name]):
                raise self.mismatch(name, taken[name])
            elif taken[name] is None and not parameter.is_required:
                taken[name] = parameter.default
        return taken

    def mismatch(self, name: str, value: object) -> FutoInError:
        """The error for a parameter, or an element of it (`events[3]`), of the wrong type."""
        return invalid(f"Type mismatch for parameter: {self.name}({name}) = {_shown(value)}")

    @staticmethod
    def _is_default_null(parameter: Parameter, value: object) -> bool:
        return value is None and not parameter.is_required and parameter.default is None


def find(name: str) -> Function:
    """The function named by `f`: interface, any version up to the served one, and function.

    Raises FutoInError: InvalidRequest, UnknownInterface, NotSupportedVersion.
    """
    function = _functions().get(name)
    if function is None:
        raise _not_found(name)
    return function


def served() -> Collection[Function]:
    """Every function that may be called."""
    return _functions().values()


def request_bytes_max(name: object) -> int:
    """The size limit of a message with that `f`; the default if it is unknown."""
    function = _functions().get(name) if isinstance(name, str) else None
    return MESSAGE_BYTES_MAX if function is None else function.request_bytes_max


def file_text(file_name: str) -> bytes | None:
    """The definition in that file (`futoin.evt.gen-1.1-iface.json`), or None."""
    return _definitions().get(file_name)


def _not_found(name: str) -> Exception:
    parts = name.split(":")
    if len(parts) != 3:
        return invalid("Invalid req.f")
    interface, version, function = parts
    major, dot, minor = version.partition(".")
    if not (dot and _is_number(major) and _is_number(minor)):
        return invalid("Invalid req.f (version)")
    versions = [served for served in SERVED if served.partition(":")[0] == interface]
    if not versions:
        return unknown_interface(interface)
    if f"{interface}:{version}" not in versions:
        return not_supported(
            f"{show(f'{interface}:{version}')} is not supported; expected one of {', '.join(versions)}"
        )
    return invalid(f"Unknown interface function: {show(function)}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


@cache
def _definitions() -> dict[str, bytes]:
    folder = files("headwater.futoin").joinpath("interfaces")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(_SUFFIX)}


def _definition(name: str) -> dict[str, Any]:
    definition: dict[str, Any] = json.loads(_definitions()[name.replace(":", "-") + _SUFFIX])
    return definition


@cache
def _functions() -> dict[str, Function]:
    """Every function that may be called, by its name in `f`."""
    return {function.name: function for name in SERVED for function in _compiled(name)}


def _compiled(name: str) -> list[Function]:
    types, functions, requires = _merged(name)
    table = TypeTable(types)
    interface, _, version = name.partition(":")
    major, _, minor = version.partition(".")
    return [
        Function(
            f"{name}:{function}",
            (interface, function),
            (int(major), int(minor)),
            {key: _parameter(table, given) for key, given in definition.get("params", {}).items()},
            frozenset(definition.get("throws", ())),
            _size(definition.get("maxreqsize")),
            _size(definition.get("maxrspsize")),
            frozenset(requires),
            frozenset(
                key for key, given in definition.get("params", {}).items() if _standard_type(table, given) == "any"
            ),
            frozenset(
                key
                for key, given in definition.get("params", {}).items()
                if _size(definition.get("maxreqsize")) > MESSAGE_BYTES_MAX and _parameter(table, given).elements
            ),
            definition.get("result") == "TracedEvents",
        )
        for function, definition in functions.items()
    ]


def _merged(name: str) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """The types, functions and constraints of a definition, including imports and inheritance (FTN3, 2.4)."""
    definition = _definition(name)
    types: dict[str, Any] = {}
    functions: dict[str, Any] = {}
    requires: set[str] = set(definition.get("requires", ()))
    for other in [*definition.get("imports", ()), *filter(None, [definition.get("inherit")])]:
        its_types, its_functions, its_requires = _merged(other)
        types |= its_types
        functions |= its_functions
        requires |= its_requires
    return types | definition.get("types", {}), functions | definition.get("funcs", {}), requires


def _parameter(table: TypeTable, given: Any) -> Parameter:
    is_required = isinstance(given, str) or "default" not in given
    default = None if is_required else given["default"]
    check = table.check(given if isinstance(given, str) else given["type"])
    elements = table.elements(given if isinstance(given, str) else given["type"])
    return Parameter(check, _standard_type(table, given) == "string", is_required, default, elements)


def _standard_type(table: TypeTable, given: Any) -> str:
    return table.standard_type(given if isinstance(given, str) else given["type"])


def _size(given: str | None) -> int:
    return MESSAGE_BYTES_MAX if given is None else int(given[:-1]) * _UNITS[given[-1]]


def _shown(value: object) -> str:
    if isinstance(value, bytes):  # JSON kept as received
        value = value.decode("utf-8", "replace")
        return value if len(value) <= 60 else f"{value[:60]}..."
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return show(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
