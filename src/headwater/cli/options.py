"""Options that several commands share, and how a command reads the effective configuration from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ..formats.settings.declaration import metavar
from ..formats.settings.path_argument import LocalPath
from ..server.config.effective import show_value
from ..server.config.settings import REMOVED, SETTINGS, Config, Setting
from ..server.config.sources import load

F = TypeVar("F", bound=Callable[..., Any])

config_option = click.option(
    "--config",
    "file",
    type=LocalPath(path_type=Path),
    help="Configuration file.  [default: headwater.toml, if it exists]",
)


class ByRoom(click.Command):
    """A command whose help lists the settings by section, after its own options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is not None:
                room, dot, _ = _key(parameter.name or "").partition(".")
                rows.setdefault(_ROOMS.get(room, room) if dot else "Options", []).append(row)
        for title, section in rows.items():
            with formatter.section(title):
                formatter.write_dl(section)


_ROOMS: Mapping[str, str] = {
    "amqp": "AMQP 1.0",
    "cne": "Cloud notifications (O-RAN)",
    "flight": "Arrow Flight",
    "futoin": "FutoIn",
    "http": "HTTP",
    "tls": "TLS",
}
"""The titles of the configuration's sections in the help."""


def setting_options(*keys: str) -> Callable[[F], F]:
    """An option for each of those settings; without keys, for all of them."""

    def decorate(function: F) -> F:
        for key in reversed(keys or tuple(SETTINGS)):
            function = _option(SETTINGS[key])(function)
        for removed in () if keys else REMOVED.values():
            function = click.option(removed.flag, _parameter(removed.key), hidden=True)(function)
        return function

    return decorate


def load_config(file: Path | None, flags: dict[str, object], logs: Sequence[str] = ()) -> Config:
    """The effective configuration; `flags` are the values of `setting_options`, None if not given. Raises
    InvalidConfiguration.
    """
    given = {_key(name): value for name, value in flags.items() if value is not None and value is not False}
    return load(given, logs=logs, file=file, environment=os.environ)


def _option(setting: Setting) -> Callable[[F], F]:
    if setting.default is False:
        return click.option(setting.flag, _parameter(setting.key), is_flag=True, help=_sentence(setting.summary))
    shown = "none" if setting.default in (None, ()) else show_value(setting.key, setting.default).strip('"')
    help_text = f"{_sentence(setting.summary)}  [default: {shown}]"
    return click.option(setting.flag, _parameter(setting.key), metavar=metavar(setting.read), help=help_text)


def _parameter(key: str) -> str:
    return f"set_{key.replace('.', '__')}"


def _key(parameter: str) -> str:
    return parameter.removeprefix("set_").replace("__", ".")


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
