"""What is wrong with how a program was started: known without reading, or importing, any setting."""

from __future__ import annotations

from ..core.errors import InvalidInput


class InvalidConfiguration(InvalidInput):
    """A setting is unknown, malformed or out of its range; `where` is the file and key, the variable, or the flag."""


class InvalidArgument(InvalidInput):
    """An argument or option of a command can never be right, whatever the server or a file holds."""
