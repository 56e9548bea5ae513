"""What every client raises, whatever it speaks, where no answer comes."""

from __future__ import annotations

from ..core.errors import EventLogError


class ServerUnreachable(EventLogError):
    """No answer came from the server. Whether an append went in is unknown: repeat it with the same ids."""

    def __init__(self, url: str, problem: str) -> None:
        self.url, self.problem = url, problem
        super().__init__(f"no answer from {url}: {problem}")
