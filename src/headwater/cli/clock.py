"""`headwater clock`: shows whether the system clock is trusted, and accepts it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from ..core.clocks import wall_clock_ms
from .options import config_option, load_config, setting_options
from .output import examples


@click.command(epilog=examples("headwater clock --accept --data /var/lib/headwater"))
@click.option("--accept", is_flag=True, help="Accept the system clock as it is now.")
@config_option
@setting_options("data")
def clock(accept: bool, file: Path | None, **flags: object) -> None:
    """Show whether the system clock is trusted, or accept it.

    A clock that jumps ahead is not trusted immediately: events get the time before the jump until the clock has been
    stable for limits.clock_patience_ms, or until this command accepts it. A running server accepts it within a second,
    other servers at their next start.
    """
    from ..storage.append.clock import accept_clock, read_known, show_ms
    from ..storage.state.data_directory import open_state, require_data

    config = load_config(file, flags)
    require_data(config.data)
    with closing(open_state(config.data)) as state:
        if accept:
            accept_clock(state)
            click.echo(f"the clock is accepted: {show_ms(wall_clock_ms())}")
            return
        known = read_known(state)
    if known is None or not known.held_from_ms:
        click.echo(f"the clock is trusted: {show_ms(wall_clock_ms())}")
    else:
        trusted = known.trusted_ms + max(0, wall_clock_ms() - known.shown_ms)
        click.echo(
            f"the system clock shows {show_ms(wall_clock_ms())} and is not trusted; "
            f"events are recorded at {show_ms(trusted)}"
        )
        click.echo("if it is correct, run headwater clock --accept; otherwise correct it")
