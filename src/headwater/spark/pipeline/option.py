"""Options of a pipeline, as its module declares them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from ...formats.settings.local_paths import check_local

IS_OPTION = "headwater.option"
"""Under this key of a field's metadata is its `OptionHelp`."""


class OptionHelp(NamedTuple):
    """What is known of an option besides its name, type and default."""

    help: str
    """A sentence."""
    flag: str | None
    minimum: float | None
    maximum: float | None
    metavar: str | None


def option(
    help: str,
    *,
    default: Any = dataclasses.MISSING,
    flag: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    metavar: str | None = None,
) -> Any:
    """A field of a pipeline's options. Without a default it is required.

    Its type is str, int, float, bool, pathlib.Path, an enum of strings, typing.Literal of strings, `X | None` of these,
    or tuple[str, ...] for what can be given several times. The flag is its name with `-` for `_`, unless `flag` says
    another.
    """
    about = OptionHelp(help, flag, minimum, maximum, metavar)
    return dataclasses.field(default=default, metadata={IS_OPTION: about})


def check_directory(given: str, where: str) -> None:
    """Raises InvalidInput for what cannot be a directory of this machine."""
    check_local(given, where, "a directory")


def check_file(given: str, where: str) -> None:
    """Raises InvalidInput for what cannot be a file of this machine."""
    check_local(given, where, "a file")
