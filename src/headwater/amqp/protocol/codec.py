"""Any AMQP value to bytes and back (part 1, section 1.6): the interface to `decoding`, `encoding` and `arrays`."""

from ...core.message.values import DecodeError
from . import arrays  # noqa: F401  what encodes an Array
from .decoding import decode
from .encoding import EncodeError, encode, encode_into

__all__ = ["DecodeError", "EncodeError", "decode", "encode", "encode_into"]
