"""A path of this machine, as an argument or option of a command."""

from __future__ import annotations

from typing import Any

import click

from ...core.errors import InvalidInput
from .local_paths import check_local


class LocalPath(click.Path):
    """A path on the command line; a URL is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            check_local(str(value), "")
        except InvalidInput as error:
            self.fail(error.problem, param, ctx)
        return super().convert(value, param, ctx)
