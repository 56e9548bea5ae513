"""The user on whose behalf the current code runs, so that a change can be attributed where it is made.

A front end sets it once, when it knows the user (`act_as`); tasks and `asyncio.to_thread` inherit it. `as_now`
carries it to work in another thread pool. The server's own work has no user.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_name: ContextVar[str] = ContextVar("headwater_acting", default="")


act_as: Callable[[str], object] = _name.set
"""From now on this task acts for the user of that name. An empty name means no known user."""


def acting() -> str | None:
    """The name of the user on whose behalf this runs; None if the user is not known."""
    return _name.get() or None


def as_now(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Callable[[], T]:
    """The call, to run in another thread on behalf of the current user."""
    return partial(copy_context().run, partial(work, *arguments, **named))
