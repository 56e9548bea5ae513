"""Azure's go-amqp: everything but what it does not show (the peer's capabilities)."""

from __future__ import annotations

from typing import ClassVar

from .basics import Basics, Security
from .corpus import OddEvents
from .extensions import Extensions, SecondSettling
from .groups import GroupsByAddress
from .management import Hearing
from .runtimes import GoAmqp


class TestGoAmqp(GroupsByAddress, Extensions, SecondSettling, Hearing, OddEvents, Basics, Security):
    """See the classes that it derives from."""

    RUNTIME = GoAmqp
    LACKS: ClassVar = {"char": "char not implemented", "decimal": "decimal64 not implemented"}
