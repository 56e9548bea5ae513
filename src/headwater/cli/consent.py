"""Before a command drops events, it says which, and asks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from ..core.errors import WouldDrop
from ..core.limits import SEQUENCE_NUMBER_MAX
from .output import show_time

Result = TypeVar("Result")

yes_option = click.option("--yes", is_flag=True, help="Do not ask, even if events are dropped.")


def when_agreed(act: Callable[[int], Result], yes: bool) -> Result:
    """The answer of `act`, whose argument is how many events it may drop: none, until the user has agreed.

    Raises what `ask` raises.
    """
    allowed = 0
    while True:
        try:
            return act(allowed)
        except WouldDrop as error:
            if not yes:
                ask(_described(error))
            allowed = SEQUENCE_NUMBER_MAX if yes else error.drops  # where the clock makes it more, this asks again


def ask(what: str, verb: str = "drop") -> None:
    """Say which events would go, and ask. Raises as `confirm`."""
    confirm(f"{verb.capitalize()} {what}?", f"this {verb}s {what}")


def confirm(question: str, effect: str) -> None:
    """Ask. Raises click.UsageError, which names the effect, without a terminal, and click.Abort for a no."""
    if not has_terminal():
        raise click.UsageError(f"{effect}, and there is no terminal for confirmation; use --yes")
    click.confirm(question, abort=True, err=True)


def has_terminal() -> bool:
    """Whether there is a terminal to ask on."""
    return sys.stdin.isatty()


def _described(drop: WouldDrop) -> str:
    what = f"{drop.what} of {drop.log}, numbered {drop.first:,} to {drop.last:,}"
    if drop.first_recorded_at is None or drop.last_recorded_at is None:
        return what
    return f"{what}, recorded from {show_time(drop.first_recorded_at)} to {show_time(drop.last_recorded_at)}"
