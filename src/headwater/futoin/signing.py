"""Message authentication codes: what is signed of a message, and with which algorithms (FTN6 1.3, FTN8 0.2 and 8.1)."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from Crypto.Hash import KMAC128, KMAC256

Mac = Callable[[bytes, bytes], bytes]
"""Key and message in, code out."""
_DEPTH_MAX = 250


def _hmac(name: str) -> Mac:
    return lambda key, text: hmac.digest(key, text, name)


def _kmac128(key: bytes, text: bytes) -> bytes:
    return KMAC128.new(key=key, mac_len=32, data=text).digest()


def _kmac256(key: bytes, text: bytes) -> bytes:
    return KMAC256.new(key=key, mac_len=64, data=text).digest()


LEGACY_ALGORITHMS: Mapping[str, Mac] = {
    name: _hmac(name.lower()) for name in ("MD5", "SHA224", "SHA256", "SHA384", "SHA512")
}
"""Of `-hmac` (FTN6, 1.3.3)."""
ALGORITHMS: Mapping[str, Mac] = {
    "HMD5": _hmac("md5"),
    "HS256": _hmac("sha256"),
    "HS384": _hmac("sha384"),
    "HS512": _hmac("sha512"),
    "KMAC128": _kmac128,
    "KMAC256": _kmac256,
}
"""Of `-smac` (FTN8, MACAlgo)."""


class Signature(NamedTuple):
    """How a request was signed, and so how its reply is."""

    mac: Mac
    key: bytes

    def of(self, tree: object) -> str:
        """The code of a message as plain values, in base64."""
        return base64.b64encode(self.mac(self.key, base(tree))).decode()


def base(tree: object) -> bytes:
    """What is signed of a message (FTN6, 1.3.1). `sec` at its top is left out, and so is what is null."""
    assert isinstance(tree, dict)
    return b"".join(_members({key: value for key, value in tree.items() if key != "sec"}, 0))


def _members(tree: dict[str, object], depth: int) -> Iterator[bytes]:
    if depth > _DEPTH_MAX:
        raise ValueError("nested too deeply")
    for key in sorted(tree, key=_order):
        value = tree[key]
        if value is None:
            continue
        yield b"%b:" % _text(key)
        if isinstance(value, list):
            value = {str(index): each for index, each in enumerate(value)}
        if isinstance(value, dict):
            yield from _members(value, depth + 1)
        else:
            yield _leaf(value)
        yield b";"


def _order(key: object) -> bytes:
    """As JavaScript sorts strings: by UTF-16 code units."""
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
    raise ValueError("no value of JSON")


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
