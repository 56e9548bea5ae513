"""The public Python API as a page: what programs import, with signatures, fields, promises and errors.

`python -m tests.docs.python_api > docs/reference/python.md` writes that page.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Annotated, Any, ForwardRef, Literal, NamedTuple, get_args, get_origin

from .documents import ROOT

PAGE = ROOT / "docs" / "reference" / "python.md"
_SEE = re.compile(r"See (\w+)(?:\.(\w+))?\.\s*")
_ERROR = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\bOverloaded\b|\bClosed\b|`[A-Z]\w+\.\w+`")
_SENTENCE = re.compile(r"(?<=[.])\s+(?=[A-Z`])")
_HEAD = """\
# The Python API

The names that programs import. All other names are internal and may change without notice.
[Install](../start.md#install) Headwater first. Examples: [embed it](../guides/embed.md),
[event sourcing](../guides/event-sourcing.md), [bulk](../guides/bulk.md). A method marked `async` is awaited. A
parameter without a type has the type of its default; one with the default None takes None. `make pages` writes this
page from docstrings.
"""


class Part(NamedTuple):
    """A module that programs import from; `names` are those of its `__all__`, unless they are given."""

    module: str
    what: str
    names: tuple[str, ...] = ()
    awaits: str = ""
    """The module whose classes this one has for asyncio."""


PARTS = (
    Part("headwater.core", "Events, queries, conditions, and what a log promises: the same over every way in."),
    Part("headwater.core.errors", "The errors of a log. Every one is an `EventLogError`."),
    Part("headwater.storage", "Logs in a directory of this process, or in memory."),
    Part("headwater.core.shared_bytes", "The memory of appends that wait.", ("SharedBytes",)),
    Part("headwater.client", "Logs of a server, over HTTP."),
    Part("headwater.client.aio", "The same for asyncio, for the tasks of one event loop.", awaits="headwater.client"),
    Part("headwater.decisions", "Event classes, projections and decisions, over any log."),
    Part("headwater.decisions.aio", "The same for asyncio."),
    Part(
        "headwater.decisions.testing",
        "Tests of decisions.",
        ("Race", "Scenario", "When", "assert_serializable", "given", "memory_log", "races"),
    ),
    Part("headwater.eventsourcing", "The persistence module of the library `eventsourcing`."),
    Part(
        "headwater.client.outbox",
        "Events of a database transaction.",
        ("Relay", "add_xfer_event", "connect_database", "create_table"),
    ),
    Part("headwater.formats.files.tabular", "Events of CSV files and tables.", ("TableMapping", "table_events")),
    Part("headwater.flight.client", "Logs of a server as columns, over Arrow Flight.", ("BulkClient",)),
    Part("headwater.flight.wire", "Requests for columns.", ("Ticket", "Split")),
    Part(
        "headwater.amqp.client",
        "A small AMQP 1.0 client; any other client works as well.",
        ("Client", "Sender", "Receiver", "Delivery", "Reply"),
    ),
    Part("headwater.amqp.protocol.message", "Messages of that client.", ("DATA", "Message", "Properties")),
    Part("headwater.amqp.protocol.types", "Values that Python has no type for.", ("Described", "Symbol")),
    Part("headwater.amqp.protocol.conditions", "The errors of that client.", ("AmqpError",)),
    Part("headwater.spark", "Spark. It needs the extra `spark`."),
    Part("headwater.spark.pipelines", "Pipelines as functions.", ("Pipeline", "load", "names")),
    Part("headwater.spark.pipeline.run", "Pipelines of your own.", ("Run", "Server", "Summary")),
    Part("headwater.spark.pipeline.progress", "The display of a run.", ("Progress",)),
    Part(
        "headwater.spark.archive",
        "Archives of logs as Delta tables.",
        ("compact", "read", "snapshot", "vacuum", "views"),
    ),
    Part("headwater.spark.projection", "States of a projection, without Spark.", ("snapshot",)),
)

SERVERS = {
    "AppendRequest",
    "AwaitedLog",
    "AwaitedReading",
    "Bus",
    "CheckReport",
    "Credentials",
    "Distrusted",
    "Grant",
    "Guard",
    "HeadwaterFactory",
    "HeadwaterRecorder",
    "HeadwaterSubscription",
    "LogCheck",
    "LogStatistics",
    "Mark",
    "MemoryState",
    "Notification",
    "NotificationType",
    "OpenGuard",
    "Properties",
    "Right",
    "SqliteState",
    "StateCheck",
    "StateEntry",
    "StateStore",
    "StoredLog",
    "User",
    "accept_loss",
    "accept_state_loss",
    "adopt_log",
    "check_directory",
    "check_log_name",
    "read_pages",
    "repair_clock",
}
"""Names that the server, its commands and other libraries call: the page says what they are, and no more."""

CALLED = {
    "AppendCondition": "",
    "AsyncLog": "append pages follow close",
    "BulkClient": "url close logs info head sequence_number_at count plan schema read append stage"
    " commit discard writer forget_writer create_log trim consumers register_consumer acknowledge unregister_consumer",
    "Client": "sender receiver manage close wait",
    "DiskFull": "",
    "Engine": "maintain",
    "InvalidInput": "",
    "Knowledge": "",
    "LocalLog": "first_retained sequence_number_at",
    "LogSettings": "",
    "LogStore": "create open names change delete close",
    "MemoryLog": "close",
    "MemoryStore": "",
    "Pipeline": "settings start",
    "Projection": "made_by on on_stored with_snapshots",
    "Query": "all of where matches",
    "QueryItem": "",
    "Race": "",
    "ReadModel": "on on_stored",
    "Receiver": "attached take close",
    "RemoteReading": "next_page rest close",
    "RemoteSubscription": "poll close",
    "Retries": "",
    "Run": "follow",
    "Sender": "send send_all close",
    "Server": "url management logs log create ensure change delete close",
    "SharedBytes": "",
    "TableMapping": "",
    "WriterState": "",
}
"""The members that programs call, of classes that have others for the server."""

GIVEN = {"Knowledge", "LocalLog", "Pipeline", "Scenario", "Sender", "Subscription", "Transaction", "When"}
"""Classes that programs get from a method, though all that they are made of is public."""


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


@cache
def _classes() -> dict[type, str]:
    """Every class of the page, with the module of its first entry."""
    found: dict[type, str] = {}
    for part in PARTS:
        for name in public(part):
            if inspect.isclass(kind := getattr(importlib.import_module(part.module), name)):
                found.setdefault(kind, part.module)
    return found


def _part(part: Part) -> Iterator[str]:
    module = importlib.import_module(part.module)
    yield f"## {part.module}\n"
    yield f"{part.what}\n"
    names = {name: getattr(module, name) for name in public(part)}
    if constants := {name: found for name, found in names.items() if not _is_class_or_function(found)}:
        yield f"Constants: {', '.join(f'`{name}`' for name in constants)}.\n"
    for name, found in names.items():
        if name not in constants:
            yield f"### `{name}`\n"
            yield from _entry(part, name, found)


def _is_class_or_function(found: Any) -> bool:
    return inspect.isclass(found) or inspect.isfunction(found)


def _entry(part: Part, name: str, found: Any) -> Iterator[str]:
    twin = getattr(importlib.import_module(part.awaits), name, None) if part.awaits else None
    if found.__name__ != name:
        yield f"Another name of `{found.__name__}`.\n"
    elif inspect.isclass(found) and _classes()[found] != part.module:
        yield f"See `{_classes()[found]}`.\n"
    elif name in SERVERS:
        yield f"{_first_sentence(found)}\n"
    elif twin is not None:
        yield f"As `{part.awaits}.{name}`{_differences(found, twin)}.\n"
    elif inspect.isclass(found):
        yield from _class(name, found)
    else:
        yield f"`{name}{_signature(found)}`\n\n{_text(found)}\n"


def _differences(found: Any, twin: Any) -> str:
    """Which members of a class for asyncio are not awaited, and which it lacks."""
    if not inspect.isclass(found):
        return ""
    called = dict(_called(found))
    plain = [name for name, member in called.items() if not _prefix(member)]
    lacking = [name for name, _ in _called(twin) if name not in called]
    return "".join(
        f"; {what}: {', '.join(f'`{name}`' for name in names)}"
        for what, names in (("not awaited", plain), ("not there", lacking))
        if names
    )


def _class(name: str, kind: type) -> Iterator[str]:
    fields = list(_fields(kind))
    if _is_made_by_programs(kind) and not fields:
        yield f"`{name}{_signature(kind)}`\n"
    base = next((base for base in kind.__mro__[1:] if base in _classes() and base.__name__ != "EventLogError"), None)
    yield f"{_text(kind)}{f' Base: `{base.__name__}`.' if base else ''}\n"
    if members := [*(_values(kind) if _is_enum(kind) else fields), *_members(kind)]:
        yield from members
        yield ""


def _is_made_by_programs(kind: type) -> bool:
    """Whether they call the class: all that it must be given is public."""
    if issubclass(kind, BaseException | str) or getattr(kind, "_is_protocol", False) or _is_enum(kind):
        return False
    required = (each for each in _all_parameters(kind) if each.default is each.empty)
    return kind.__name__ not in GIVEN and not any(_is_internal(each, kind) for each in required)


def _is_enum(kind: type) -> bool:
    return issubclass(kind, Enum)


def _values(kind: Any) -> Iterator[str]:
    texts = _attribute_texts(kind)
    yield from (_item(f"{name} = {value.value!r}", texts.get(name, "")) for name, value in kind.__members__.items())


def _fields(kind: type) -> Iterator[str]:
    """An item for each field of a named tuple, a dataclass or a struct."""
    if kind.__name__ in GIVEN or issubclass(kind, BaseException):
        return
    if any(hasattr(kind, mark) for mark in ("_fields", "__dataclass_fields__", "__struct_fields__")):
        texts = _attribute_texts(kind)
        yield from (_item(str(each), texts.get(each.name, "")) for each in _shown_parameters(kind))


def _attribute_texts(kind: type) -> dict[str, str]:
    """The first sentence of the docstring of each attribute, where there is one."""
    [owner] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(owner, ast.ClassDef)
    found = {}
    for node, after in zip(owner.body, owner.body[1:], strict=False):
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[target.id] = _SENTENCE.split(" ".join(str(after.value.value).split()))[0]
    return found


def _members(kind: type) -> Iterator[str]:
    """An item for each public method and property; one item names those that another class of the page describes."""
    named: dict[str, list[str]] = {}
    items = []
    for name, found in _called(kind):
        other, addition = _reference(name, found)
        given = _parameters(found)
        if other is None or other not in _classes() or set(given) - {"log"} != set(_parameters(_contents(other)[name])):
            items.append(_item(_call(name, found), _told(kind, name)))
        elif addition:
            items.append(_item(f"{_prefix(found)}.{name}", f"as in `{other.__name__}`. {addition}"))
        else:
            after = ", after the parameter `log`" if "log" in given else ""
            named.setdefault(f"`{other.__name__}`{after}", []).append(f"`{_prefix(found)}{name}`")
    yield from (f"- As in {other}: {', '.join(names)}" for other, names in named.items())
    yield from items


def _contents(kind: type) -> dict[str, Any]:
    """The members of our classes in its bases, those of the nearest base first."""
    owners = [owner for owner in kind.__mro__ if owner.__module__.startswith("headwater.")]
    return {name: _plain_function(found) for owner in reversed(owners) for name, found in vars(owner).items()}


def _called(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties that programs call, without those of a base class of the page."""
    if _is_enum(kind):
        return
    names = CALLED[kind.__name__].split() if kind.__name__ in CALLED else None
    of_bases = {name for base in kind.__mro__[1:] if base in _classes() for name in _contents(base)}
    for name, found in _contents(kind).items():
        is_callable = inspect.isfunction(found) or isinstance(found, property)
        if is_callable and not name.startswith("_") and (name in names if names is not None else name not in of_bases):
            yield name, found


def _plain_function(found: Any) -> Any:
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _reference(name: str, found: Any) -> tuple[type | None, str]:
    """The class that describes a member of that name, where its docstring says `See EventLog.`, and the rest of it."""
    text = _text(found)
    if (reference := _SEE.match(text)) and reference[2] in (None, name):
        other = _described_in(reference[1])
        if other is not None and name in _contents(other):
            return other, text[reference.end() :]
    return None, ""


def _told(kind: type, name: str) -> str:
    """The promise of a member: where it says `See EventLog.`, the one there, and its own addition."""
    text = _text(_contents(kind)[name])
    if (reference := _SEE.match(text)) and (other := _described_in(reference[1])) is not None:
        member = reference[2] or name
        if member in _contents(other):
            return f"{_told(other, member)} {text[reference.end() :]}".strip()
    return text


def _described_in(name: str) -> type | None:
    """The class that others refer to."""
    for module in ("headwater.core", "headwater.core.reading", "headwater.core.local", "headwater.decisions"):
        if inspect.isclass(found := getattr(importlib.import_module(module), name, None)):
            return found
    return None


def _item(code: str, text: str) -> str:
    return f"- `{code}`: {text}" if text else f"- `{code}`"


def _call(name: str, found: Any) -> str:
    return f".{name}" if isinstance(found, property) else f"{_prefix(found)}.{name}{_signature(found)}"


def _prefix(function: Any) -> str:
    return "async " if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else ""


def _parameters(found: Any) -> list[str]:
    return [] if isinstance(found, property) else [each.name for each in _all_parameters(found)]


def _signature(found: Any) -> str:
    """Of public parameters, with short types, and with nothing that differs from machine to machine."""
    given = inspect.signature(found)
    answer = given.empty if inspect.isclass(found) else _annotation(given.return_annotation, found)
    if repr(answer) == "None":
        answer = given.empty
    return str(given.replace(parameters=_shown_parameters(found), return_annotation=answer))


def _shown_parameters(found: Any) -> list[inspect.Parameter]:
    """The public ones: one of an internal type that has a default is the server's."""
    return [
        _plain(each, found)
        for each in _all_parameters(found)
        if each.default is each.empty or not _is_internal(each, found)
    ]


def _all_parameters(found: Any) -> list[inspect.Parameter]:
    """With the annotations of the source."""
    if inspect.isclass(found) and getattr(found.__init__, "__module__", "") == "typing":
        return []  # it has none, and a protocol among its bases
    fields = inspect.get_annotations(found) if inspect.isclass(found) else {}
    given = inspect.signature(found).parameters.values()
    return [
        each.replace(annotation=fields.get(each.name, each.annotation))
        for each in given
        if each.name not in ("self", "cls")
    ]


def _is_internal(parameter: inspect.Parameter, owner: Any) -> bool:
    """Whether its type names classes of ours, none of which programs use."""
    names = re.findall(r"\b[A-Z]\w+", str(_annotation(parameter.annotation, owner)))
    meant = (getattr(inspect.getmodule(owner), name, None) for name in names)
    ours = [kind for kind in meant if inspect.isclass(kind) and kind.__module__.startswith("headwater.")]
    return bool(ours) and not any(kind in _classes() and kind.__name__ not in SERVERS for kind in ours)


def _plain(parameter: inspect.Parameter, owner: Any) -> inspect.Parameter:
    """Without a type that the default shows, and without a default that says nothing to a reader, such as an object."""
    default, annotation = parameter.default, _annotation(parameter.annotation, owner)
    if isinstance(default, int | str | float) and repr(annotation) == type(default).__name__:
        annotation = parameter.empty
    elif default is None:
        annotation = _Shown(repr(annotation).removesuffix(" | None"))
    elif isinstance(default, Enum):
        annotation, default = parameter.empty, _Shown(f"{type(default).__name__}.{default.name}")
    elif default is not parameter.empty and type(default) not in (int, str, bytes, float, tuple, bool):
        default = _Shown("...")
    return parameter.replace(annotation=annotation, default=default)


def _annotation(given: Any, owner: Any) -> Any:
    """As in the source; a name for a bounded type or for some literals is replaced by them."""
    if get_origin(given) is Annotated:
        given = get_args(given)[0]
    if isinstance(given, ForwardRef):
        given = given.__forward_arg__
    if given is inspect.Parameter.empty:
        return given
    text = given if isinstance(given, str) else re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", inspect.formatannotation(given))
    return _Shown(re.sub(r"\b[A-Z]\w+", lambda name: _short(name[0], inspect.getmodule(owner)), text))


def _short(name: str, module: ModuleType | None) -> str:
    meant = getattr(module, name, None)
    if get_origin(meant) is Annotated:
        return str(get_args(meant)[0].__name__)
    if get_origin(meant) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(meant)))}]"
    return name


class _Shown:
    """What `repr` shows as this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _text(found: Any) -> str:
    """The first paragraph of a docstring, and the errors that the rest names."""
    first, _, rest = (inspect.getdoc(found) or "").partition("\n\n")
    raised = [each for each in _SENTENCE.split(" ".join(rest.split())) if each.startswith("Raises ")]
    errors = dict.fromkeys(name for each in raised for name in _ERROR.findall(each))
    return " ".join([*first.split(), *([f"Raises {', '.join(errors)}."] if errors else raised)])


def _first_sentence(found: Any) -> str:
    return _SENTENCE.split(_text(found))[0]


if __name__ == "__main__":
    print(page(), end="")
