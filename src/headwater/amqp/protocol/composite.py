"""Composite types (part 1, section 1.3): described lists whose fields have names, kinds and defaults.

A composite type is a dataclass made by `composite`. It declares its fields in the standard's order, each with a Python
type, a kind (see `fields`) and a default. A field without a default is mandatory, and so is one marked MANDATORY.

    @composite("detach", 0x16)
    class Detach(Composite):
        handle: Annotated[int, UINT]
        closed: Annotated[bool, BOOLEAN] = False

Kinds are read from the annotations when the class is made, so a module of composite types has no
`from __future__ import annotations`.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable
from reprlib import repr as shown
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

from ...core.message.values import U32_U32
from .codec import DecodeError, EncodeError, encode_into
from .decoding import read
from .encoding import CODE_UBYTE, write_list
from .fields import Field, Kind, Read, Write
from .types import Described, Symbol, ULong

MANDATORY: Final = "mandatory"
"""Marks a field that a peer must send, although it has a default here: `Annotated[int, UINT, MANDATORY] = 0`."""


class Composite:
    """Base of all composite types: equality by fields, and a `repr` without fields at their default."""

    __slots__ = ()

    NAME: ClassVar[str]
    CODE: ClassVar[int]
    FIELDS: ClassVar[tuple[Field, ...]]
    LAYOUT: ClassVar[Layout]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    def __repr__(self) -> str:
        given = ((field, getattr(self, field.name)) for field in self.FIELDS)
        parts = [f"{field.name}={value!r}" for field, value in given if field.is_mandatory or value != field.default]
        return f"{type(self).__name__}({', '.join(parts)})"


C = TypeVar("C", bound=Composite)


@dataclass_transform(eq_default=False)
def composite(name: str, code: int) -> Callable[[type[C]], type[C]]:
    """Make the class a composite type with the standard's name and code, as described in the module."""

    def make(type: type[C]) -> type[C]:
        made = dataclasses.dataclass(slots=True, eq=False, repr=False)(type)
        made.NAME = name
        made.CODE = code
        made.FIELDS = tuple(map(_field_of, dataclasses.fields(made)))  # type: ignore[arg-type]
        made.LAYOUT = Layout(made)
        return made

    return make


def _field_of(declared: dataclasses.Field[Any]) -> Field:
    annotation: Any = declared.type
    kind, *marks = annotation.__metadata__
    is_mandatory = MANDATORY in marks or declared.default is dataclasses.MISSING
    return Field(declared.name, kind, None if is_mandatory else declared.default, is_mandatory)


class Layout:
    """A composite type as its reader and writer need it."""

    __slots__ = ("count", "defaults", "head", "make", "mandatory", "name", "names", "readers", "writers")

    def __init__(self, type: type[Composite]) -> None:
        fields = type.FIELDS
        self.make: Any = type
        self.name = type.NAME
        self.count = len(fields)
        self.head = b"\x00" + CODE_UBYTE.pack(0x53, type.CODE)
        self.names = [field.name for field in fields]
        self.readers: list[Read] = [field.kind.read for field in fields]
        self.writers: list[tuple[str, Write]] = [(field.name, field.kind.write) for field in fields]
        self.defaults = [field.default for field in fields]
        self.mandatory = [index for index, field in enumerate(fields) if field.is_mandatory]


class Group:
    """Composite types that are allowed in one place, by descriptor: a ulong or a symbol."""

    __slots__ = ("_by_code", "_by_symbol", "name")

    def __init__(self, name: str, types: Iterable[type[Composite]]) -> None:
        self.name = name
        self._by_code = {type.CODE: type.LAYOUT for type in types}
        self._by_symbol = {f"amqp:{layout.name}:list": layout for layout in self._by_code.values()}

    def find(self, buffer: bytes, at: int) -> tuple[Layout | None, int]:
        """The layout of the described value at `at` (None if it is not in this group), and where its list begins."""
        if buffer[at] != 0x00:
            raise DecodeError(f"expected {self.name}, got constructor 0x{buffer[at]:02x}", at)
        if buffer[at + 1] == 0x53:
            return self._by_code.get(buffer[at + 2]), at + 3
        descriptor, after = read(buffer, at + 1, 0)
        if type(descriptor) is ULong:
            return self._by_code.get(descriptor), after
        if type(descriptor) is Symbol:
            return self._by_symbol.get(descriptor), after
        return None, after


def kind_of(group: Group) -> Kind:
    """The kind of a field that holds one of the group; any other described value is kept as `Described`."""

    def read_member(buffer: bytes, at: int) -> tuple[Any, int]:
        layout, body = group.find(buffer, at)
        return read(buffer, at, 0) if layout is None else read_fields(layout, buffer, body)

    return Kind(group.name, read_member, _write_member)


def read_fields(layout: Layout, buffer: bytes, at: int) -> tuple[Any, int]:
    """A value of the layout's type, from the list that begins at `at`; bounds are not checked (see `decoding`).

    Raises DecodeError, which names the type and the field: there are too many fields, a mandatory field is missing, or
    a type is wrong."""
    start, code = at, buffer[at]
    if code == 0xC0:
        stop, count, at = at + 2 + buffer[at + 1], buffer[at + 2], at + 3
    elif code == 0x45:
        stop, count, at = at + 1, 0, at + 1
    elif code == 0xD0:
        size, count = U32_U32.unpack_from(buffer, at + 1)
        stop, at = at + 5 + size, at + 9
    else:
        raise DecodeError(f"{layout.name}: expected a list, got constructor 0x{code:02x}", at)
    if count > layout.count:
        raise DecodeError(f"{layout.name}: expected at most {layout.count} fields, got {count}", at)
    values = layout.defaults.copy()
    readers = layout.readers
    index = 0
    try:
        for index in range(count):
            if buffer[at] == 0x40:
                at += 1
            else:
                values[index], at = readers[index](buffer, at)
    except DecodeError as wrong:
        raise DecodeError(f"{layout.name}.{layout.names[index]}: {wrong.problem}", wrong.at) from None
    if at != stop:
        raise DecodeError(f"{layout.name}: the list's size does not match its fields", start)
    for index in layout.mandatory:
        if values[index] is None:
            raise DecodeError(f"{layout.name}.{layout.names[index]}: a value is required, got null or nothing", at)
    return layout.make(*values), at


def write_composite(out: bytearray, value: Composite, count: int = -1) -> None:
    """Append the value with its descriptor and its first `count` fields; by default, all fields.

    Raises EncodeError, which names the type and the field: a mandatory field is None, has a wrong type, or is out of
    range."""
    layout = value.LAYOUT
    content = bytearray()
    index = 0
    try:
        for index, (name, write) in enumerate(layout.writers if count < 0 else layout.writers[:count]):
            field = getattr(value, name)
            if field is not None:
                write(content, field)
            elif index in layout.mandatory:
                raise EncodeError("a value is required, got None")
            else:
                content.append(0x40)
    except EncodeError as wrong:
        raise EncodeError(f"{layout.name}.{layout.names[index]}: {wrong}") from None
    except (struct.error, TypeError, AttributeError, OverflowError, ValueError) as wrong:
        given = shown(getattr(value, layout.names[index], None))
        raise EncodeError(f"{layout.name}.{layout.names[index]}: cannot encode {given}: {wrong}") from None
    out += layout.head
    write_list(out, layout.count if count < 0 else count, content)


def _write_member(out: bytearray, value: object) -> None:
    if isinstance(value, Composite):
        write_composite(out, value)
    elif isinstance(value, Described):
        encode_into(out, value)
    else:
        raise EncodeError(f"expected a composite or described value, got {shown(value)}")
