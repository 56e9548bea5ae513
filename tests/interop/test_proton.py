"""python-qpid-proton: everything."""

from __future__ import annotations

from .basics import Basics, Security
from .extensions import Extensions, Negotiation, SecondSettling
from .management import Managing
from .runtimes import Proton


class TestProton(Extensions, Negotiation, SecondSettling, Managing, Basics, Security):
    """See the classes that it derives from."""

    RUNTIME = Proton
