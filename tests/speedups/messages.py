"""The two walks of a message side by side, over messages of every shape that a seed has: well-formed and garbled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from headwater.amqp.protocol.message import DATA, DATAS, SEQUENCE, decode_section, walk
from headwater.amqp.protocol.types import Array, Described, Symbol
from headwater.core.message.sections import section_code
from headwater.core.message.validity import look_through_any
from headwater.core.message.values import DecodeError

Walk = Callable[[bytes, int], tuple[dict[int, tuple[int, int]], Any] | None]

NUMBERS = {
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55), 1), 0x60: 2, 0x61: 2,
    **dict.fromkeys((0x70, 0x71, 0x72, 0x74), 4), **dict.fromkeys((0x80, 0x81, 0x82, 0x83, 0x84), 8),
    0x94: 16, 0x98: 16,
}  # fmt: skip
"""By constructor: how many bytes a value has that may be any."""
CODES = (*NUMBERS, 0, 0x40, 0x41, 0x45, 0x56, 0x73, 0xA0, 0xA1, 0xA3, 0xB1, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0)
TEXTS = (
    b"", b"k", b"key", b"x-opt-a", b"amqp:", b"amqp:data:binary", "zwölf € 🐟".encode(), b"a" * 9, b"b" * 300,
    b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"abcdefg\x80", b"\xf0\x9f\x90", "é".encode() * 8,
)  # fmt: skip
"""What is UTF-8 and, from the ninth on, what is hardly so: overlong, a surrogate, above Unicode, cut off."""
DEPTH = 4
ENVELOPE_BYTES_MAX, KEYS_MAX = 16 * 1024, 64


def compare(native: Walk, message: bytes, size: int) -> bool:
    """Both walks of a message, which must agree; whether it is valid."""
    found = native(message, size)
    try:
        expected = look_through_any(message, size)
    except DecodeError:
        assert found is None, (message.hex(), size)
        return False
    if found is None:
        assert is_left_to_python(message + bytes(size - len(message))), (message.hex(), size)
    else:
        assert found == expected, (message.hex(), size)
        assert list(found[0]) == list(expected[0])
    return True


def is_left_to_python(message: bytes) -> bool:
    """Whether a valid message is one of those that `speedups/message.c` names."""
    found = walk(message)
    spans = [found.header, found.message_annotations, found.properties, found.application_properties, found.footer]
    if found.body is not None and found.body_kind not in (DATA, DATAS):
        spans.append(found.body)
    given = [span for span in spans if span is not None]
    sections = [*given, *(span for span in (found.delivery_annotations, found.body) if span is not None)]
    if not sections or found.body_kind == DATAS or any(message[at + 1] == 0x80 for at, _ in sections):
        return True
    if found.body_kind == SEQUENCE and found.body is not None:
        at = section_code(message, found.body[0])[1]
        head = 1 if message[at] == 0x45 else 2 + message[at + 1] if message[at] == 0xC0 else None
        if (5 + int.from_bytes(message[at + 1 : at + 5]) if head is None else head) != found.body[1] - at:
            return True
    if sum(stop - at for at, stop in [*given, found.delivery_annotations or (0, 0)]) > ENVELOPE_BYTES_MAX:
        return True
    return any(has_left_values(decode_section(message, span), int(span == found.body)) for span in given)


def has_left_values(value: Any, depth: int) -> bool:
    """Whether a value has a described one, a map of many keys, or one `depth` values deep whose keys are no texts."""
    if isinstance(value, Described):
        return True
    if isinstance(value, dict):
        if len(value) > KEYS_MAX or (depth and any(type(key) not in (str, Symbol) for key in value)):
            return True
        return any(has_left_values(each, depth + 1) for each in value.values())
    return isinstance(value, (list, Array)) and any(has_left_values(each, depth + 1) for each in value)


class Messages:
    """Messages as a seed has them."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def message(self) -> bytes:
        """Most often a valid one."""
        draw = self._random
        sections = [
            (0x70, lambda: self.fields((0x41, 0x50, 0x52, 0x42, 0x43))),
            (0x71, lambda: self.entries(0xA3)),
            (0x72, lambda: self.entries(0xA3)),
            (0x73, lambda: self.fields((0xA1, 0xA0, 0xA1, 0xA1, 0xB1, 0x98, 0xA3, 0xB3, 0x83, 0x83, 0xA1, 0x70, 0xA1))),
            (0x74, lambda: self.entries(0xA1, are_simple=True)),
            draw.choice([(0x75, self.data), (0x75, self.data), (0x76, self.list), (0x77, self.value)]),
            (0x78, lambda: self.entries(0xA3)),
        ]  # fmt: skip
        chosen = [each for each in sections if draw.random() < (0.2 if each[0] in (0x71, 0x78) else 0.6)]
        if draw.random() < 0.03:
            chosen.append(draw.choice(sections))
        return b"".join(self.descriptor(code) + made() for code, made in chosen)

    def garbled(self, message: bytes) -> bytes:
        """With up to three changes: a byte is another, comes twice or is gone, or the end is."""
        draw, content = self._random, bytearray(message)
        for _ in range(draw.randint(1, 3)):
            if content:
                at = draw.randrange(len(content))
                change = draw.randrange(8)
                if change == 0:
                    del content[at]
                elif change == 1:
                    content.insert(at, content[at])
                elif change == 2:
                    del content[at:]
                else:
                    content[at] = draw.choice([*CODES, content[at] ^ 1 << draw.randrange(8)])
        return bytes(content)

    def descriptor(self, code: int) -> bytes:
        """Of a section, rarely in another form than the usual."""
        lot = self._random.random()
        if lot < 0.98:
            return bytes((0, 0x53, code))
        return bytes((0, 0x80)) + code.to_bytes(8) if lot < 0.99 else b"\0\xa3\x10amqp:data:binary"

    def fields(self, codes: tuple[int, ...]) -> bytes:
        """A list of values of these constructors, or null, up to one of them."""
        draw = self._random
        values = [b"\x40" if draw.random() < 0.4 else self.value(0, code) for code in codes]
        return self.compound(0xC0, values[: draw.randint(0, len(values))])

    def entries(self, key: int, depth: int = 0, *, are_simple: bool = False) -> bytes:
        """A map with keys of that constructor."""
        draw, elements = self._random, []
        for each in range(draw.choice([0, 1, 2, 3, 5, draw.choice([9, 64, 65])])):
            named = draw.random() < 0.5
            elements.append(self.sized(key, draw.choice(TEXTS[:9]) if named else b"k%d" % each))
            elements.append(self.simple() if are_simple else self.value(depth + 1))
        return self.compound(0xC1, elements)

    def list(self, depth: int = 0) -> bytes:
        """A list of any values."""
        return self.compound(0xC0, [self.value(depth + 1) for _ in range(self._random.randint(0, 4))])

    def array(self) -> bytes:
        """Elements of one constructor, with a size that may be small."""
        draw = self._random
        code = draw.choice([*NUMBERS, 0x40, 0x45, 0x56, 0x73, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC1, 0xD1, 0xC0, 0])
        elements = [self.value(DEPTH, code)[1:] for _ in range(draw.randint(0, 3))]
        return self.compound(0xE0, elements, bytes((code,)) if elements or draw.random() < 0.5 else b"")

    def data(self) -> bytes:
        """The content of a section of data."""
        return self.sized(0xA0, self._random.randbytes(self._random.choice([0, 1, 20, 300])))

    def simple(self) -> bytes:
        """A value that lies in no other."""
        return self.value(
            0, self._random.choice([*NUMBERS, 0x40, 0x41, 0x42, 0x43, 0x44, 0x56, 0x73, 0xA0, 0xA1, 0xA3])
        )

    def value(self, depth: int = 0, code: int | None = None) -> bytes:
        """Any value, or one of that constructor: perhaps with a larger size."""
        draw = self._random
        if code is None:
            if draw.random() < 0.6:
                return self.simple()
            code = draw.choice([0xC0, 0xC1, 0xE0, 0xE0, 0x00, 0x45] if depth < DEPTH else [0x45, 0xE0])
        if code in NUMBERS:
            return bytes((code,)) + draw.randbytes(NUMBERS[code])
        if code == 0x56:
            return bytes((code, draw.choice([0, 1, 1, 2]) if draw.random() < 0.1 else 1))
        if code == 0x73:
            return bytes((code,)) + draw.choice([65, 0x1F41F, 0xD7FF, 0xD800, 0xDFFF, 0x10FFFF, 0x110000]).to_bytes(4)
        if code & 0xF0 in (0xA0, 0xB0):
            return self.sized(code, draw.choice(TEXTS[:9] if draw.random() < 0.95 else TEXTS))
        if code == 0x00:
            descriptor = draw.choice(
                [self.sized(0xA3, draw.choice(TEXTS[:6])), b"\x80" + draw.randbytes(8), b"\x53\x70"]
            )
            return b"\0" + descriptor + self.value(depth + 1)
        if code in (0xC1, 0xD1):
            return self.entries(draw.choice([0xA1, 0xA3, 0xB1, 0x54, 0x98]), depth)
        if code in (0xC0, 0xD0):
            return self.list(depth)
        return self.array() if code in (0xE0, 0xF0) else bytes((code,))

    def sized(self, code: int, content: bytes) -> bytes:
        """What begins with its size, in a form of one byte if that suffices and by chance."""
        if len(content) > 255 or code & 0x10 or self._random.random() < 0.1:
            return bytes((code | 0x10,)) + len(content).to_bytes(4) + content
        return bytes((code, len(content))) + content

    def compound(self, code: int, elements: list[bytes], constructor: bytes = b"") -> bytes:
        """Elements with their size and how many they are."""
        content = constructor + b"".join(elements)
        if code == 0xC0 and not elements and self._random.random() < 0.5:
            return b"\x45"
        if len(content) > 254 or len(elements) > 255 or self._random.random() < 0.1:
            return bytes((code | 0x10,)) + (len(content) + 4).to_bytes(4) + len(elements).to_bytes(4) + content
        return bytes((code, len(content) + 1, len(elements))) + content


def fuzz(native: Walk, seed: str, rounds: int) -> int:
    """Compare the walks over so many messages of that seed, each also garbled and without its content.

    Answers how many of them were valid.
    """
    source, valid = Messages(seed), 0
    for _ in range(rounds):
        message = source.message()
        valid += compare(native, message, len(message))
        for garbled in (source.garbled(message), source.garbled(message)):
            compare(native, garbled, len(garbled))
        for content in contents(message):
            compare(native, message[:content], len(message))
            compare(native, source.garbled(message[:content]), len(message))
    return valid


def contents(message: bytes) -> Iterator[int]:
    """Where the content of its section of data begins, if it has just one."""
    try:
        found = walk(message)
    except DecodeError:
        return
    if found.payload is not None:
        yield found.payload[0]
