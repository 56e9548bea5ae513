"""The examples at the end of a command's help."""

from __future__ import annotations


def examples(*commands: str) -> str:
    """An epilog for click that keeps each example on a line of its own, so that it can be copied."""
    return "\n".join(("\b", "Examples:" if len(commands) > 1 else "Example:", *(f"  {line}" for line in commands)))
