"""Qpid JMS: what the JMS interface reaches; no link properties, no described filters but the selector."""

from __future__ import annotations

from .basics import Basics, Security
from .management import Hearing
from .runtimes import Jms


class TestJms(Hearing, Basics, Security):
    """See the classes that it derives from."""

    RUNTIME = Jms
