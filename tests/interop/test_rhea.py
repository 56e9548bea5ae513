"""rhea: everything."""

from __future__ import annotations

from .basics import Basics, Security
from .extensions import Extensions, Negotiation, SecondSettling
from .runtimes import Rhea


class TestRhea(Extensions, Negotiation, SecondSettling, Basics, Security):
    """See the classes that it derives from."""

    RUNTIME = Rhea
