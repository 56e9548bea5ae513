"""HTTP/1.1 calls to other servers: one request and its answer, on kept connections, with limits on time and bytes."""

from .caller import BadFile, Caller, NotSent, Tls
from .connection import AnswerTooLong, Reply, Unanswered
from .resolver import Names, addresses_of
from .sockets import Sockets
from .target import Target, lines_of, target_of

__all__ = [
    "AnswerTooLong",
    "BadFile",
    "Caller",
    "Names",
    "NotSent",
    "Reply",
    "Sockets",
    "Target",
    "Tls",
    "Unanswered",
    "addresses_of",
    "lines_of",
    "target_of",
]
