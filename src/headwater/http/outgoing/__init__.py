"""Calls to others over HTTP/1.1: one request and its answer, on kept connections, bounded in time and bytes."""

from .caller import Caller, NotSent
from .connection import AnswerTooLong, Reply, Unanswered
from .resolving import Names, addresses_of
from .sockets import Sockets
from .target import Target, lines_of, target_of

__all__ = [
    "AnswerTooLong",
    "Caller",
    "Names",
    "NotSent",
    "Reply",
    "Sockets",
    "Target",
    "Unanswered",
    "addresses_of",
    "lines_of",
    "target_of",
]
