"""Options of a pipeline, as its module declares them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from ...formats.settings.local_paths import check_local

IS_OPTION = "headwater.option"
"""The metadata key of a field's `OptionHelp`."""


class OptionHelp(NamedTuple):
    """An option's properties other than its name, type and default."""

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
    or tuple[str, ...] for a repeatable option. The flag is its name with `-` for `_`, unless `flag` sets another.
    """
    about = OptionHelp(help, flag, minimum, maximum, metavar)
    return dataclasses.field(default=default, metadata={IS_OPTION: about})


def check_directory(given: str, where: str) -> None:
    """Raises InvalidInput for anything but a possible directory of this machine."""
    check_local(given, where, "a directory")


def check_file(given: str, where: str) -> None:
    """Raises InvalidInput for anything but a possible file of this machine."""
    check_local(given, where, "a file")
