"""The public Python API as a page: what programs import, with signatures and the first paragraph of each docstring.

`python -m tests.docs.python_api > docs/reference/python.md` makes that page anew.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, ForwardRef, NamedTuple

from .documents import ROOT

PAGE = ROOT / "docs" / "reference" / "python.md"
_SEE = re.compile(r"See (\w+)(?:\.(\w+))?\.")
_HEAD = """\
# The Python API

What programs import. What is not here is internal and may change without notice. [Install it](../start.md#install)
first. With examples: [embed it](../guides/embed.md), [event sourcing](../guides/event-sourcing.md),
[bulk](../guides/bulk.md). Made by `python -m tests.docs.python_api`: change the docstring, not this page.
"""


class Part(NamedTuple):
    """A module that programs import from; `names` are those of its `__all__`, unless they are given."""

    module: str
    what: str
    names: tuple[str, ...] = ()


PARTS = (
    Part("headwater.core", "Events, queries, conditions, and what a log promises: the same over every way in."),
    Part("headwater.core.errors", "What goes wrong. Every error is an `EventLogError`."),
    Part("headwater.storage", "Logs in a directory of this process, or in memory."),
    Part("headwater.core.shared_bytes", "The memory of appends that wait.", ("SharedBytes",)),
    Part("headwater.client", "Logs of a server, over HTTP."),
    Part("headwater.client.aio", "The same for asyncio."),
    Part("headwater.decisions", "Event classes, projections and decisions, over any log."),
    Part("headwater.decisions.aio", "The same for asyncio."),
    Part(
        "headwater.decisions.testing",
        "Tests of decisions.",
        ("Race", "Scenario", "When", "assert_serializable", "given", "memory_log", "races"),
    ),
    Part(
        "headwater.client.outbox",
        "Events of a database transaction.",
        ("Relay", "add_xfer_event", "connect_database", "create_table"),
    ),
    Part("headwater.flight.client", "Logs of a server as columns, over Arrow Flight.", ("BulkClient",)),
    Part("headwater.flight.wire", "What the columns are asked with.", ("Ticket", "Split")),
    Part(
        "headwater.amqp.client",
        "A small AMQP 1.0 client; any other will do as well.",
        ("Client", "Sender", "Receiver", "Delivery", "Reply"),
    ),
    Part("headwater.spark", "Spark. It needs the extra `spark`."),
    Part("headwater.spark.pipelines", "Pipelines as functions.", ("Pipeline", "load", "names")),
)


@cache
def page() -> str:
    """The text of the page."""
    return "\n".join([_HEAD, *(line for part in PARTS for line in _part(part))])


def public(part: Part) -> list[str]:
    """The names of a part."""
    module = importlib.import_module(part.module)
    return sorted(part.names or getattr(module, "__all__", None) or _own_classes(module))


def _own_classes(module: ModuleType) -> list[str]:
    return [name for name, kind in vars(module).items() if inspect.isclass(kind) and kind.__module__ == module.__name__]


def _part(part: Part) -> Iterator[str]:
    module = importlib.import_module(part.module)
    yield f"## {part.module}\n"
    yield f"{part.what}\n"
    for name in public(part):
        found = getattr(module, name)
        if (inspect.isclass(found) or inspect.isfunction(found)) and found.__name__ != name:
            yield f"### `{name}`\n\nAnother name of `{found.__name__}`.\n"
        elif inspect.isclass(found):
            yield from _class(name, found)
        elif inspect.isfunction(found):
            yield f"### `{name}`\n\n```\n{name}{_signature(found)}\n```\n\n{_first_paragraph(found)}\n"
        else:
            yield f"### `{name}`\n\nA constant of the type `{type(found).__name__}`.\n"


def _class(name: str, kind: type) -> Iterator[str]:
    yield f"### `{name}`\n"
    if _says_how_it_is_made(kind):
        yield f"```\n{name}{_signature(kind)}\n```\n"
    yield f"{_first_paragraph(kind)}\n"
    if members := list(_members(kind)):
        yield "| | |\n| --- | --- |"
        yield from members
        yield ""


def _says_how_it_is_made(kind: type) -> bool:
    return not issubclass(kind, BaseException) and not getattr(kind, "_is_protocol", False) and not _is_enum(kind)


def _is_enum(kind: type) -> bool:
    return hasattr(kind, "__members__")


def _members(kind: type) -> Iterator[str]:
    """A row for each public method, property and value of an enumeration; inherited ones of ours as well."""
    if _is_enum(kind):
        yield from (f"| `{name}` | `{value.value}` |" for name, value in kind.__members__.items())  # type: ignore[attr-defined]
        return
    for name in dict.fromkeys(name for owner in kind.__mro__ if _is_ours(owner) for name in vars(owner)):
        found = inspect.getattr_static(kind, name)
        plain = found.__func__ if isinstance(found, staticmethod | classmethod) else found
        if name.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property)):
            continue
        call = f".{name}" if isinstance(plain, property) else f"{_prefix(plain)}.{name}{_signature(plain)}"
        yield f"| `{_cell(call)}` | {_cell(_told(kind, name))} |"


def _told(kind: type, name: str) -> str:
    """What a member promises: where it says `See EventLog.`, what that says, and what it adds."""
    found = next(vars(owner)[name] for owner in kind.__mro__ if name in vars(owner))
    text = _first_paragraph(found)
    if (reference := _SEE.match(text)) and (other := _described_in(reference[1])) is not None:
        member = reference[2] or name
        if any(member in vars(owner) for owner in other.__mro__):
            return f"{_told(other, member)} {text[reference.end() :]}".strip()
    return text


def _described_in(name: str) -> type | None:
    """The class that others refer to."""
    for module in ("headwater.core", "headwater.core.reading", "headwater.core.local", "headwater.decisions"):
        if inspect.isclass(found := getattr(importlib.import_module(module), name, None)):
            return found
    return None


def _prefix(function: Any) -> str:
    return "async " if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else ""


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("headwater.")


def _signature(found: Any) -> str:
    """As it is written; without `self`, and with nothing that differs from machine to machine."""
    if inspect.isclass(found) and getattr(found.__init__, "__module__", "") == "typing":
        return "()"  # it has none, and a protocol among its bases
    try:
        given = inspect.signature(found)
    except ValueError:
        return "(...)"
    parameters = [_plain(each) for each in given.parameters.values() if each.name != "self"]
    answer = given.empty if inspect.isclass(found) else _annotation(given.return_annotation)
    return str(given.replace(parameters=parameters, return_annotation=answer))


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """With its annotation as it is written, and without a default that says nothing to a reader, such as an object."""
    default = parameter.default
    if isinstance(default, Enum):
        default = _Shown(str(default) if not isinstance(default, int) else f"{type(default).__name__}.{default.name}")
    elif default is not parameter.empty and not isinstance(default, int | str | bytes | float | tuple | None):
        default = _Shown("...")
    return parameter.replace(annotation=_annotation(parameter.annotation), default=default)


def _annotation(given: Any) -> Any:
    if isinstance(given, ForwardRef):
        given = given.__forward_arg__
    return _Shown(given) if isinstance(given, str) else given


class _Shown:
    """What `repr` shows as this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _first_paragraph(found: Any) -> str:
    text = (inspect.getdoc(found) or "").partition("\n\n")[0]
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
