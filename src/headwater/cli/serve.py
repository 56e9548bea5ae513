"""`headwater serve`: runs the server in the foreground until a signal ends it."""

from __future__ import annotations

from pathlib import Path

import click

from ..server.process.log_lines import configure_logging
from .options import ByRoom, config_option, load_config, setting_options
from .output import examples


@click.command(cls=ByRoom, epilog=examples("headwater serve --data /var/lib/headwater --log orders:4 --log audit"))
@config_option
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="A log to create if it does not exist.  Repeatable.  [default: `default` if there is no log]",
)
@setting_options()
def serve(file: Path | None, logs: tuple[str, ...], **flags: object) -> None:
    """Run the server.

    By default it listens on 127.0.0.1 port 8080, stores data in ./headwater-data and has one log named "default". When
    ready, it prints a line for each address; it logs to stderr. SIGTERM or Ctrl-C shuts it down gracefully; a second
    signal stops it immediately. SIGHUP reloads certificates; if the terminal was closed, it shuts the server down
    gracefully.
    """
    config = load_config(file, flags, logs)
    configure_logging(config.log_level)
    from ..core.errors import DiskFull, StorageUnavailable
    from ..server import app  # not at the top: `headwater serve --help` does not need these imports
    from ..storage.disk.locks import DirectoryUnavailable

    try:
        app.serve(config, click.echo)
    except DiskFull as error:
        missing = max(error.needed_bytes - error.free_bytes, 1)
        remedy = f"free {missing} bytes on {config.data}" if error.has_inodes else "remove some files"
        raise StorageUnavailable(f"cannot start: {error.path}: {error.shortage}; {remedy}, and start again") from None
    except DirectoryUnavailable as error:
        raise DirectoryUnavailable(f"{error}; or choose another directory with --data") from None
