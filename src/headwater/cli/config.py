"""`headwater config`: shows the configuration that the server would use, and the origin of each value."""

from __future__ import annotations

from pathlib import Path

import click

from ..server.config.effective import render
from .options import config_option, load_config, setting_options
from .output import examples


@click.command(epilog=examples("HEADWATER_HTTP_PORT=9000 headwater config"))
@config_option
@click.option("--log", "logs", multiple=True, metavar="NAME[:PARTITIONS]", help="As for headwater serve.")
@setting_options()
def config(file: Path | None, logs: tuple[str, ...], **flags: object) -> None:
    """Show the effective configuration.

    Prints it as TOML, with the origin of each value: the default, the file, the variable or the flag. Accepts the
    options of `headwater serve`. Keys and the hashes of passwords and tokens are not shown. Certificate and key files
    must exist and match.
    """
    from ..server.startup.setting_files import check_files  # not at the top: help does not need these imports

    effective = load_config(file, flags, logs)
    check_files(effective)
    for line in render(effective):
        click.echo(line)
