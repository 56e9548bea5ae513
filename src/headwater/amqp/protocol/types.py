"""The Python types that represent AMQP's types (part 1, section 1.6), so that a decoded value is encoded as it was
received.

`None`, `bool`, `str`, `bytes`, `uuid.UUID`, `list` and `dict` are null, boolean, string, binary, uuid, list and map;
`float` is double and a plain `int` is long. Every other type has its class here. These classes do not check their
range; `codec.encode` does. Equality is Python's (`UInt(1) == 1`, `Symbol("a") == "a"`), so code that depends on the
type checks `type(value)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class UByte(int):
    """An 8-bit unsigned integer."""

    __slots__ = ()


class UShort(int):
    """A 16-bit unsigned integer."""

    __slots__ = ()


class UInt(int):
    """A 32-bit unsigned integer."""

    __slots__ = ()


class ULong(int):
    """A 64-bit unsigned integer."""

    __slots__ = ()


class Byte(int):
    """An 8-bit signed integer."""

    __slots__ = ()


class Short(int):
    """A 16-bit signed integer."""

    __slots__ = ()


class Int(int):
    """A 32-bit signed integer."""

    __slots__ = ()


class Long(int):
    """A 64-bit signed integer. A plain `int` is encoded the same way."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01T00:00:00Z, as a 64-bit signed integer."""

    __slots__ = ()


class Float(float):
    """A 32-bit floating-point number. Python's own `float` is AMQP's double."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A symbolic value: ASCII text."""

    __slots__ = ()


class Decimal32(bytes):
    """An IEEE 754-2008 decimal32, as 4 bytes."""

    __slots__ = ()


class Decimal64(bytes):
    """An IEEE 754-2008 decimal64, as 8 bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """An IEEE 754-2008 decimal128, as 16 bytes."""

    __slots__ = ()


class Described:
    """A value with a descriptor that gives its meaning (part 1, section 1.1.2). Do not change it after it is
    created.
    """

    __slots__ = ("descriptor", "value")
    __match_args__ = ("descriptor", "value")

    def __init__(self, descriptor: object, value: object) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return NotImplemented
        return self.descriptor == other.descriptor and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Array(list[Any]):
    """Values of one type, which share one constructor (part 1, section 1.6.24).

    `constructor` is the constructor's byte, or `Described(descriptor, constructor)` if the elements are described (then
    every element is a `Described` too), or None: `codec.encode` then chooses one that fits the elements.
    """

    __slots__ = ("constructor",)

    def __init__(self, items: Iterable[Any] = (), constructor: int | Described | None = None) -> None:
        super().__init__(items)
        self.constructor = constructor

    def __repr__(self) -> str:
        return f"Array({super().__repr__()}, {self.constructor!r})"
