"""Asks for confirmation before a command drops events, and names these events."""

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
    """Call `act` with the maximum number of events that it may drop: none, until the user has agreed. Returns its
    result. Raises the errors of `ask`.
    """
    allowed = 0
    while True:
        try:
            return act(allowed)
        except WouldDrop as error:
            if not yes:
                ask(_described(error))
            allowed = SEQUENCE_NUMBER_MAX if yes else error.drops  # if more events have expired since, ask again


def ask(what: str, verb: str = "drop") -> None:
    """Show which events would be dropped, and ask. Raises the errors of `confirm`."""
    confirm(f"{verb.capitalize()} {what}?", f"this {verb}s {what}")


def confirm(question: str, effect: str) -> None:
    """Ask. Raises click.UsageError, which names the effect, if there is no terminal, and click.Abort if the user
    declines.
    """
    if not has_terminal():
        raise click.UsageError(f"{effect}, and there is no terminal for confirmation; use --yes")
    click.confirm(question, abort=True, err=True)


def has_terminal() -> bool:
    """Whether there is a terminal for confirmation."""
    return sys.stdin.isatty()


def _described(drop: WouldDrop) -> str:
    what = f"{drop.what} of {drop.log}, numbered {drop.first:,} to {drop.last:,}"
    if drop.first_recorded_at is None or drop.last_recorded_at is None:
        return what
    return f"{what}, recorded from {show_time(drop.first_recorded_at)} to {show_time(drop.last_recorded_at)}"
