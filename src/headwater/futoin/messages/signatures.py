"""Message authentication codes: the signed text of a message, and the algorithms (FTN6 1.3, FTN8 0.2 and 8.1)."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import NamedTuple

from ...core.loop.slices import Slices

Mac = Callable[[bytes, bytes], bytes]
"""Takes key and message, returns the code."""
_DEPTH_MAX = 250
_PIECES_AT_ONCE = 1024
"""That many pieces take about 0.5 ms."""


def _hmac(name: str) -> Mac:
    return lambda key, text: hmac.digest(key, text, name)


def _kmac128(key: bytes, text: bytes) -> bytes:
    from Crypto.Hash import KMAC128  # imported here, because it takes 50 ms to load and is rarely used

    return KMAC128.new(key=key, mac_len=32, data=text).digest()


def _kmac256(key: bytes, text: bytes) -> bytes:
    from Crypto.Hash import KMAC256

    return KMAC256.new(key=key, mac_len=64, data=text).digest()


LEGACY_ALGORITHMS: Mapping[str, Mac] = {
    name: _hmac(name.lower()) for name in ("MD5", "SHA224", "SHA256", "SHA384", "SHA512")
}
"""The algorithms of `-hmac` (FTN6, 1.3.3)."""
ALGORITHMS: Mapping[str, Mac] = {
    "HMD5": _hmac("md5"),
    "HS256": _hmac("sha256"),
    "HS384": _hmac("sha384"),
    "HS512": _hmac("sha512"),
    "KMAC128": _kmac128,
    "KMAC256": _kmac256,
}
"""The algorithms of `-smac` (FTN8, MACAlgo)."""


class Signature(NamedTuple):
    """How a request was signed; its reply is signed the same way."""

    mac: Mac
    key: bytes

    def of(self, tree: object) -> str:
        """The code of a message given as plain values, in base64."""
        return self.of_base(base(tree))

    def of_base(self, text: bytes) -> str:
        """The code of a text returned by `base`."""
        return base64.b64encode(self.mac(self.key, text)).decode()


def base(tree: object) -> bytes:
    """The signed text of a message (FTN6, 1.3.1), without its top-level `sec` and without nulls.

    Raises ValueError for values without such a form.
    """
    return b"".join(_pieces(tree))


async def base_in_slices(tree: object) -> bytes:
    """The same for a message of any length, with turns for other tasks in between. Raises ValueError."""
    slices, pieces, found = Slices(), _pieces(tree), list[bytes]()
    while some := list(islice(pieces, _PIECES_AT_ONCE)):
        found += some
        await slices.pause()
    return b"".join(found)


def _pieces(tree: object) -> Iterator[bytes]:
    """The text, piece by piece. Each value costs the same at any depth, because one generator walks all of them."""
    if not isinstance(tree, dict):
        raise ValueError("a message must be a map")
    levels = [_in_order({key: value for key, value in tree.items() if key != "sec"})]
    while levels:
        for key, value in levels[-1]:
            if value is None:
                continue
            yield b"%b:" % _text(key)
            if isinstance(value, dict | list):
                levels.append(_in_order(value))
                break
            yield _leaf(value)
            yield b";"
        else:
            levels.pop()
            if levels:
                yield b";"
        if len(levels) > _DEPTH_MAX:
            raise ValueError("nested too deeply")


def _in_order(container: dict[object, object] | list[object]) -> Iterator[tuple[object, object]]:
    """The members of a map sorted by name, or the elements of an array sorted by index, both compared as text."""
    if isinstance(container, list):
        return ((index, container[index]) for index in sorted(range(len(container)), key=str))
    names = sorted(container) if _are_ascii(container) else sorted(container, key=_order)  # type: ignore[type-var]
    return ((name, container[name]) for name in names)


def _are_ascii(names: Iterable[object]) -> bool:
    """Whether all are ASCII texts, which compare as they are: that takes a fifth of the time of a sort by keys."""
    try:
        return "".join(names).isascii()  # type: ignore[arg-type]
    except TypeError:
        return False


def _order(key: object) -> bytes:
    """The sort key of JavaScript strings: UTF-16 code units."""
    return str(key).encode("utf-16-be", "surrogatepass")


def _leaf(value: object) -> bytes:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, float):
        return number(value).encode()
    raise ValueError("not a JSON value")


def _text(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


def number(value: float) -> str:
    """A number as JavaScript writes it (ECMA-262, Number::toString): the text that a peer signed."""
    if value == 0:
        return "0"
    shortest = repr(value)
    if 1e-6 <= abs(value) < 1e21:
        plain = format(Decimal(shortest), "f")
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"
