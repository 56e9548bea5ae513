"""python-qpid-proton: everything."""

from __future__ import annotations

from .basics import Basics, Security
from .corpus import OddEvents, RandomMessages
from .extensions import Extensions, NamedRefusals, Negotiation, SecondSettling
from .management import Managing
from .runtimes import Proton


class TestProton(
    Extensions, NamedRefusals, Negotiation, SecondSettling, Managing, OddEvents, RandomMessages, Basics, Security
):
    """See the classes that it derives from."""

    RUNTIME = Proton
