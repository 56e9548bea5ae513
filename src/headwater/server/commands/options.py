"""Options that commands share, and how a command gets the effective configuration from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ..config import SETTINGS, Config, Setting
from ..effective import show_value
from ..sources import load

F = TypeVar("F", bound=Callable[..., Any])

config_option = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="Configuration file.  [default: headwater.toml, where there is one]",
)


def setting_options(*keys: str) -> Callable[[F], F]:
    """An option for each of those settings; without keys, for all of them."""

    def decorate(function: F) -> F:
        for key in reversed(keys or tuple(SETTINGS)):
            function = _option(SETTINGS[key])(function)
        return function

    return decorate


def load_config(file: Path | None, flags: dict[str, object], logs: Sequence[str] = ()) -> Config:
    """The effective configuration; `flags` are the values of `setting_options`, None where not given.

    Raises InvalidConfiguration.
    """
    given = {_key(name): value for name, value in flags.items() if value is not None and value is not False}
    return load(given, logs=logs, file=file, environment=os.environ)


def _option(setting: Setting) -> Callable[[F], F]:
    if setting.default is False:
        return click.option(setting.flag, _parameter(setting.key), is_flag=True, help=_sentence(setting.summary))
    shown = "none" if setting.default in (None, ()) else show_value(setting.key, setting.default).strip('"')
    help_text = f"{_sentence(setting.summary)}  [default: {shown}]"
    return click.option(setting.flag, _parameter(setting.key), metavar="VALUE", help=help_text)


def _parameter(key: str) -> str:
    return f"set_{key.replace('.', '__')}"


def _key(parameter: str) -> str:
    return parameter.removeprefix("set_").replace("__", ".")


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
