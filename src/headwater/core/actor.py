"""On whose behalf the code runs that is running: so that who made a change can be told where the change is made.

A front end says it once, when it knows who asks (`act_as`); tasks and `asyncio.to_thread` carry it on. Work that goes
to another pool of threads is carried there by `as_now`. What the server does by itself is done by nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_name: ContextVar[str] = ContextVar("headwater_acting", default="")


def act_as(name: str) -> None:
    """From now on this task acts for the user of that name; empty: for nobody whom the server knows."""
    _name.set(name)


def acting() -> str | None:
    """The name of the user for whom this runs; None for nobody whom the server knows."""
    return _name.get() or None


def as_now(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Callable[[], T]:
    """The call, to be made in another thread for whom this runs now."""
    return partial(copy_context().run, partial(work, *arguments, **named))
