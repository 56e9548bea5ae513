"""DCB over HTTP: logs, append, read and subscribe as JSON; CloudEvents in and out.

Speaks the first draft of the DCB specification ("the seed", Specification.md of 2023-08-02) and the form of
dcb.events of today; `docs/conformance/dcb.md` says what is kept of each.
"""

from .server import Application

__all__ = ["Application"]
