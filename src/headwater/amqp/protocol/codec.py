"""Any AMQP value to bytes and back (part 1, section 1.6): the front door of `decoding`, `encoding` and `arrays`."""

from . import arrays  # noqa: F401  what encodes an Array
from .decoding import DEPTH_MAX, WEAK_KEYS_MAX, ZERO_WIDTH_PER_BYTE_MAX, DecodeError, count_values, decode, skip
from .encoding import EncodeError, encode, encode_into

__all__ = [
    "DEPTH_MAX",
    "WEAK_KEYS_MAX",
    "ZERO_WIDTH_PER_BYTE_MAX",
    "DecodeError",
    "EncodeError",
    "count_values",
    "decode",
    "encode",
    "encode_into",
    "skip",
]
