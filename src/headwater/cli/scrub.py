"""`headwater scrub`: shows the results of the scrub of a data directory, and starts a pass."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from ..core.clocks import wall_clock_ms
from .options import config_option, load_config, setting_options
from .output import examples


@click.command(
    epilog=examples("headwater scrub --data /var/lib/headwater", "headwater scrub --now --data /var/lib/headwater")
)
@click.option("--now", is_flag=True, help="Start a pass now.")
@config_option
@setting_options("data")
def scrub(now: bool, file: Path | None, **flags: object) -> None:
    """Show the results of the scrub, or start a pass now.

    A server verifies every file of its data directory on the disk once per limits.scrub_ms. With --now a running server
    starts a pass within a second (or after its first minute); other servers start one at their next start. Exits
    with 5 if damage has been found.
    """
    from ..storage.append.clock import show_ms
    from ..storage.home.copy_file import home_of
    from ..storage.maintenance.scrub import SETTLED_S, ask, read_place, shown, told
    from ..storage.state.data_directory import open_state, require_data
    from ..storage.state.remote import RemoteState
    from .storage import DAMAGED

    config = load_config(file, flags)
    require_data(config.data)
    if now:
        with closing(open_state(config.data)) as state:
            ask(state, wall_clock_ms())
            is_served = isinstance(state, RemoteState)
        if is_served:
            click.echo(f"the server starts a scrub pass within 1 s, but not within {SETTLED_S:.0f} s of its own start")
        else:
            click.echo(f"no server is running; the next one starts a scrub pass {SETTLED_S:.0f} s after its start")
        return
    place = read_place(config.data)
    if not place.began_at:
        click.echo("the scrub has not run yet")
        return
    ended = f"ended {show_ms(place.ended_at)}" if place.ended_at else "is running"
    click.echo(f"the pass that started {show_ms(place.began_at)} {ended}: {shown(place)}")
    has_home = home_of(config.data) is not None
    for each in place.damaged:
        click.echo(f"{each.path}: {told(each, has_home=has_home)}")
    if place.damaged:
        click.get_current_context().exit(DAMAGED)
