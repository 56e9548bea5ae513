"""FutoIn event streams: FTN18 1.1 (Event Stream), by FTN3 1.9 messages, over HTTP (FTN5 1.4) and WebSocket.

Existing FutoIn clients add, poll and receive the events of a log at `/futoin/{log}`; `docs/conformance/futoin.md` says
what is kept of each standard.
"""

from .host import Settings
from .naming import Alias, read_alias
from .server import Application

__all__ = ["Alias", "Application", "Settings", "read_alias"]
