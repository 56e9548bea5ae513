"""DCB over HTTP: logs, append, read and subscribe as JSON; CloudEvents in and out.

Speaks the first draft of the DCB specification ("the seed", Specification.md of 2023-08-02) and the current form of
dcb.events; `docs/conformance/dcb.md` describes conformance to each.
"""

from .server import Application

__all__ = ["Application"]
