"""`headwater home init --from`, `leave` and `hand-over`: planned moves of logs, and of the primary."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import NotPrimary, StorageUnavailable
from .home_address import connected_owner, home_address, opened_home
from .options import config_option, load_config, setting_options
from .output import counted, examples
from .progress import progress_bar

if TYPE_CHECKING:
    from ..homes.comparison import Compared
    from ..homes.postgres.home import PostgresHome
    from ..homes.postgres.lease import LeaseStanding

REFUSED = 1
LOOK_S = 0.2
TAKING_OVER_S = 30.0
"""The maximum time between a server's taking the lease and its first append."""


def utc(s: float) -> str:
    """A time in s since 1970, shown to the second."""
    return datetime.fromtimestamp(s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def fill_from(source: Path, address: str, role: str | None, remedy: str, server: str) -> None:
    """Create a home from a data directory, and show the result. Raises StorageUnavailable."""
    from ..homes.migration import move_in, origin_of
    from ..homes.postgres.foundation import found

    origin = origin_of(source)
    with connected_owner(address, remedy) as owned:
        is_to_move = found(owned, origin.identity, role, is_copy=origin.is_copy)
    if not is_to_move:
        click.echo(
            f"the home {origin.identity.incarnation} already contains the logs of {source}; start servers with it"
        )
        return
    with opened_home(address) as opened, progress_bar("committing") as progress:

        def told(log: str, total: int, done: int) -> None:
            if progress is not None:
                progress(log, done, total)

        moved = move_in(opened, source, server, told)
        incarnation = opened.incarnation
    _show(moved.logs)
    click.echo(f"the home {incarnation} contains all of {source}, now a copy of it; start servers with this --home")
    if moved.obstacle:
        click.echo(f"no server may append yet: {moved.obstacle}")
    if origin.is_copy:
        click.echo(
            f"note: {source} was a copy of an earlier database. If that database still accepts writes, or another "
            "copy has left it (headwater home leave), the logs continue there, and both would assign the same numbers. "
            "In that case, do not start a server with this home, and drop its database"
        )


@click.command(
    epilog=examples("headwater home leave --data /var/lib/headwater --home postgresql://headwater@db.example/headwater")
)
@config_option
@setting_options("home", "data")
def leave(file: Path | None, **flags: object) -> None:
    """Turn the copy of a stopped server into an independent data directory, and close the home.

    Use it to return from several servers to one. Stop all servers first. The copy fetches missing events and is counted
    and compared with the home; if anything is missing, nothing changes. Events keep their numbers, and
    logs keep their incarnations. Afterwards no server appends to that home. If this is interrupted, run it again.
    """
    from ..homes.migration import move_out

    config = load_config(file, flags)
    with opened_home(home_address(file, flags)) as opened:
        compared = move_out(opened, config.data, f"{socket.gethostname()}:{config.http.port}")
        incarnation = opened.incarnation
    _show(compared)
    click.echo(f"the home {incarnation} has been closed; start one server on {config.data}, without --home")


@click.command(
    "hand-over",
    epilog=examples(
        "headwater home hand-over b.example:8080 --data /var/lib/headwater "
        "--home postgresql://headwater@db.example/headwater"
    ),
)
@click.argument("name")
@config_option
@setting_options("home", "home_lease_ms", "data")
def hand_over(name: str, file: Path | None, **flags: object) -> None:
    """Make the server NAME the primary, and wait until it is.

    Use it before maintenance of the primary's machine. Run it there while the server runs, with its --data. NAME is the
    name in `headwater home status`. If that server is not running, is behind or is not ready, the command fails
    with the reason. Appends pause for less than a second; nothing is lost.
    """
    config = load_config(file, flags)
    with opened_home(home_address(file, flags)) as opened:
        before = opened.standing()
        if before.holder == name and before.remaining_s:
            click.echo(_primary(before))
            return
        _ask(opened, config.data, name, before.term.number)
        after = _changed(opened, name, before.term.number, config.home_lease_ms / 1000 + TAKING_OVER_S)
    click.echo(_primary(after))
    if after.holder != name:
        click.echo(f"{name} did not take the lease; see its log", err=True)
        click.get_current_context().exit(REFUSED)


def _ask(opened: PostgresHome, data: Path, name: str, term: int) -> None:
    """Ask the primary to hand over after that term. Raises StorageUnavailable if NAME cannot take over."""
    from ..homes.hand_over import HandOver, ask_for, obstacle_of
    from ..storage.home.copy_file import home_of
    from ..storage.state.data_directory import open_state

    if (obstacle := obstacle_of(opened, name)) is not None:
        raise StorageUnavailable(f"{name} cannot be the primary: {obstacle}")
    if home_of(data) is None:
        raise StorageUnavailable(f"{data} is not a copy of a home; pass the primary's data directory with --data")
    try:
        with closing(open_state(data)) as state:
            ask_for(state, HandOver(name, term))
    except NotPrimary:
        problem = (
            f"the server of {data} is a replica; run this on the primary's machine (headwater home status shows it)"
        )
        raise StorageUnavailable(problem) from None


def _changed(opened: PostgresHome, name: str, term: int, patience_s: float) -> LeaseStanding:
    """The lease after that term. Raises StorageUnavailable if no server takes it in time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        standing = opened.standing()
        if standing.term.number > term and standing.remaining_s:
            acts = any(each.name == standing.holder and each.role == "primary" for each in opened.servers())
            if acts or standing.holder != name:
                return standing
        time.sleep(LOOK_S)
    raise StorageUnavailable(
        f"no server has taken over within {patience_s:.0f} s; headwater home status shows the reason"
    )


def _primary(standing: LeaseStanding) -> str:
    since = "" if standing.since is None else f" since {utc(standing.since)}"
    return f"{standing.holder} is the primary{since}, term {standing.term.number}"


def _show(compared: list[Compared]) -> None:
    from ..storage.state.journal import NAME

    for name, last, extent in compared:
        what = "change" if name == NAME else "event"
        whose = "users, consumers, positions and settings" if name == NAME else name
        click.echo(
            f"{whose}: {counted(extent.events, what)} up to number {last:,}, in {counted(extent.frames, 'frame')}, "
            "identical in both"
        )
