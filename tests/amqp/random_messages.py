"""Random messages of AMQP in all forms of the encoding: most are well-formed, some have what not every client reads."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TypeVar

T = TypeVar("T")

CHAR, DECIMALS = 0x73, (0x74, 0x84, 0x94)
_WIDTHS = {
    1: (0x50, 0x51, 0x52, 0x53, 0x54, 0x55), 2: (0x60, 0x61), 4: (0x70, 0x71, 0x72, 0x74),
    8: (0x80, 0x81, 0x82, 0x83, 0x84), 16: (0x94, 0x98),
}  # fmt: skip
_FIXED = [(code, width) for width, codes in _WIDTHS.items() for code in codes]
_CONSTANTS = (b"\x40", b"\x41", b"\x42", b"\x43", b"\x44", b"\x56\x00", b"\x56\x01")
_TEXTS = ("", "a", "\0", "ä😀", "\ufffe", "x" * 300, "toString", "__proto__", "amqp:x", "example.com:x")
_NAMES = (*filter(str.isascii, _TEXTS), "constructor", "valueOf", "x-opt-a")
_ARRAYS = (
    *(code for code, _ in _FIXED), 0x56, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC1, 0xD1, CHAR, 0x40, 0x45, 0xC0,
)  # fmt: skip
_DEEPEST = 5


def random_messages(seed: int | str, lacking: frozenset[int] = frozenset()) -> Iterator[bytes]:
    """Messages without end, the same for the same seed; they have no values with the constructors that are lacking."""
    made = _Made(Random(seed), lacking)
    while True:
        if message := made.message():
            yield message


class _Made:
    def __init__(self, random: Random, lacking: frozenset[int]) -> None:
        self.random = random
        self.fixed = [(code, width) for code, width in _FIXED if code not in lacking]
        self.arrays = [code for code in _ARRAYS if code not in lacking]
        self.has_chars = CHAR not in lacking

    def message(self) -> bytes:
        found = b""
        if self._is(0.15):
            found += _section(0x70, self._list([self._any_of(b"\x41", b"\x40"), self._any_of(b"\x50\x04", b"\x40")]))
        if self._is(0.5):
            found += _section(0x72, self._annotations())
        if self._is(0.4):
            fields = [self._scalar() if self._is(0.2) else b"\x40" for _ in range(self.random.randrange(14))]
            found += _section(0x73, self._list(fields))
        if self._is(0.4):
            found += _section(0x74, self._properties())
        found += self._body()
        return found + (_section(0x78, self._annotations()) if self._is(0.15) else b"")

    def _body(self) -> bytes:
        kind = self.random.random()
        if kind < 0.3:
            return _section(0x75, self._sized(0xA0, 0xB0, self.random.randbytes(3))) * self._any_of(1, 2)
        if kind < 0.5:
            return _section(0x76, self._list(self._values(0))) * self._any_of(1, 1, 2)
        return _section(0x77, self._value(0)) if kind < 0.9 else b""

    def _annotations(self) -> bytes:
        names = self.random.sample(_NAMES, self.random.randrange(3))
        return self._map([part for name in names for part in (self._sized(0xA3, 0xB3, name.encode()), self._value(0))])

    def _properties(self) -> bytes:
        names = self.random.sample(_TEXTS, self.random.randrange(3))
        return self._map([part for name in names for part in (self._sized(0xA1, 0xB1, name.encode()), self._simple())])

    def _simple(self) -> bytes:
        return self._scalar() if self._is(0.6) else b"\x00" + self._descriptor() + self._scalar()

    def _scalar(self) -> bytes:
        kind = self.random.randrange(26)
        if kind < 15:
            code, width = self.random.choice(self.fixed)
            edges = (bytes(width), b"\xff" * width, b"\x7f" + b"\xff" * (width - 1), b"\x80" + bytes(width - 1))
            return bytes([code]) + self._any_of(*edges, self.random.randbytes(width))
        if kind < 19:
            return self._any_of(*_CONSTANTS)
        if kind < 21:
            return self._sized(0xA0, 0xB0, self.random.randbytes(self._any_of(0, 1, 5)))
        if kind < 23:
            return self._sized(0xA1, 0xB1, self._any_of(*_TEXTS).encode())
        if kind < 25 or not self.has_chars:
            return self._sized(0xA3, 0xB3, self._any_of(*_NAMES).encode())
        return bytes([CHAR]) + "ä".encode("utf-32-be")

    def _value(self, depth: int) -> bytes:
        kind = self.random.random()
        if depth >= _DEEPEST or kind < 0.5:
            return self._scalar()
        if kind < 0.65:
            return b"\x45" if self._is(0.2) else self._list(self._values(depth))
        if kind < 0.8:
            pairs = range(self.random.randrange(3))
            return self._map([part for _ in pairs for part in (self._value(depth + 3), self._value(depth + 1))])
        if kind < 0.92:
            return self._array()
        return b"\x00" + self._descriptor() + self._value(depth + 1)

    def _values(self, depth: int) -> list[bytes]:
        return [self._value(depth + 1) for _ in range(self.random.randrange(4))]

    def _descriptor(self) -> bytes:
        """Mostly one that is fit."""
        kind = self.random.random()
        if kind < 0.4:
            return self._sized(0xA3, 0xB3, self._any_of(*_NAMES).encode())
        return b"\x80" + self.random.randbytes(8) if kind < 0.8 else self._value(_DEEPEST - 1)

    def _array(self) -> bytes:
        code = self.random.choice(self.arrays)
        count = self.random.randrange(4)
        content = bytes([code]) + b"".join([self._element(code) for _ in range(count)])
        if self._is(0.7):
            return bytes((0xE0, len(content) + 1, count)) + content
        return b"\xf0" + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content

    def _element(self, code: int) -> bytes:
        if code == CHAR:
            return b"\0\0\0a"
        if code in (0x40, 0x45, 0xC0):
            return b"" if code != 0xC0 else b"\x01\x00"
        if code == 0x56:
            return self._any_of(b"\x00", b"\x01")
        if code in (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3):
            return b"\x02ab" if code < 0xB0 else b"\0\0\0\x02ab"
        if code in (0xC1, 0xD1):
            key = self._any_of(b"\xa1\x00", b"\xa3\x01a", b"\xa0\x01a")
            short = bytes((len(key) + 2, 2)) + key + b"\x40"
            long = (len(key) + 5).to_bytes(4) + (2).to_bytes(4) + key + b"\x41"
            return short if code == 0xC1 else long
        return self.random.randbytes(dict(_FIXED)[code])

    def _list(self, items: list[bytes]) -> bytes:
        return self._compound(0xC0, items)

    def _map(self, parts: list[bytes]) -> bytes:
        return self._compound(0xC1, parts)

    def _compound(self, short: int, items: list[bytes]) -> bytes:
        content = b"".join(items)
        if len(content) < 254 and self._is(0.8):
            return bytes((short, len(content) + 1, len(items))) + content
        return bytes([short | 0x10]) + (len(content) + 4).to_bytes(4) + len(items).to_bytes(4) + content

    def _sized(self, short: int, long: int, content: bytes) -> bytes:
        if len(content) < 256 and self._is(0.8):
            return bytes((short, len(content))) + content
        return bytes([long]) + len(content).to_bytes(4) + content

    def _is(self, share: float) -> bool:
        return self.random.random() < share

    def _any_of(self, *given: T) -> T:
        return self.random.choice(given)


def _section(code: int, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value
