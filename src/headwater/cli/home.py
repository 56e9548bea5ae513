"""`headwater home`: manages the home that several servers share."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import NotPrimary, StorageUnavailable
from ..formats.settings.path_argument import LocalPath
from .consent import confirm
from .home_address import connected_owner, home_address, opened_home
from .home_moves import REFUSED, fill_from, hand_over, leave, utc
from .options import config_option, load_config, setting_options
from .output import examples

if TYPE_CHECKING:
    from ..homes.postgres.home import PostgresHome
    from ..homes.postgres.members import Member
    from ..homes.postgres.schema import Finding
    from ..homes.postgres.servers import ServerReport

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
PROMOTIONS = ("ask", "waited-for", "managed")
"""The values in `homes.postgres.schema`, which is not imported for help pages."""
COMPARED_S = 5.0
"""A running server compares its copy with the home within this time, and reports whether it is ahead."""


@click.group(epilog=examples("headwater home init --home postgresql://headwater@db.example/headwater"))
def home() -> None:
    """Manage the PostgreSQL database shared by replicas.

    This database is called the home: several servers store their logs in it. Set its address with --home,
    HEADWATER_HOME, or `home` in the configuration file.
    """


home.add_command(leave)
home.add_command(hand_over)


@home.command(
    epilog=examples(
        "headwater home init --home postgresql://owner@db.example/headwater --role headwater",
        "headwater home init --sql --role headwater",
        "headwater home init --from /var/lib/headwater --home postgresql://owner@db.example/headwater --role headwater",
    )
)
@click.option("--role", metavar="NAME", help="Also grant this role the privileges of a server.")
@click.option("--sql", "is_sql", is_flag=True, help="Print the SQL statements instead.")
@click.option("--from", "source", type=LocalPath(file_okay=False, path_type=Path), metavar="DIR",
              help="Start with the logs of this data directory.")  # fmt: skip
@config_option
@setting_options("home")
def init(role: str | None, is_sql: bool, source: Path | None, file: Path | None, **flags: object) -> None:
    """Create the tables of a home. An existing home is left unchanged.

    --from DIR moves the data directory of a stopped server into a home without logs. Events keep their numbers, and
    logs keep their incarnations; users, settings, consumers and positions move too. Everything is then counted and
    compared. DIR becomes the first copy of the home: start the first server on it. DIR can also be the most complete
    copy of a lost home. If this is interrupted, run it again.
    """
    from ..homes.postgres.schema import initial_sql, make_tables

    if is_sql and source is not None:
        raise click.UsageError("--sql and --from cannot be combined; run the statements of --sql first")
    if is_sql:
        click.echo(initial_sql(role), nl=False)
        return
    address, remedy = home_address(file, flags), "have its administrator run the output of headwater home init --sql"
    if source is not None:
        fill_from(source, address, role, remedy, f"{socket.gethostname()}:{load_config(file, flags).http.port}")
        return
    with connected_owner(address, remedy) as owned:
        identity = make_tables(owned, role)
    click.echo(f"the home {identity.incarnation} is ready; start servers with the same --home")


@home.command(epilog=examples("headwater home check --home postgresql://headwater@db.example/headwater"))
@json_option
@config_option
@setting_options("home")
def check(as_json: bool, file: Path | None, **flags: object) -> None:
    """Check whether the database is configured safely for a home. Exits with 1 if it is not."""
    from ..homes.roles.lease import LeaseTimes

    with opened_home(home_address(file, flags)) as opened:
        found = [*opened.check(LeaseTimes().clock_off_max_s), *_of_hosts(opened)]
    if as_json:
        click.echo(json.dumps({"findings": [each._asdict() for each in found]}, indent=2))
    else:
        for each in found:
            click.echo(f"{'problem' if each.is_problem else 'note'}: {each.text}")
        click.echo("NOT SAFE: fix the problems above" if _has_problem(found) else "OK")
    if _has_problem(found):
        click.get_current_context().exit(REFUSED)


@home.command(epilog=examples("headwater home status --home postgresql://headwater@db.example/headwater --json"))
@json_option
@config_option
@setting_options("home", "home_lease_ms")
def status(as_json: bool, file: Path | None, **flags: object) -> None:
    """Show which server is the primary, how far behind the others are, and the heads of the logs.

    Also shows which standby commits wait for in vain, and whether the database answers too slowly, as seen from this
    machine, for the servers' lease (--home-lease-ms if none is connected).
    """
    from ..homes.postgres.hosts import both_write, unknown_hosts
    from ..homes.roles.lease import LeaseTimes

    config = load_config(file, flags)
    with opened_home(home_address(file, flags)) as opened:
        standing, heads, servers, members = opened.standing(), opened.heads(), opened.servers(), opened.members()
        incarnation, (writing, silent) = opened.incarnation, opened.writable_hosts()
        lengths, missing = opened.lease_lengths(), opened.missing_standbys()
    writable, unknown = both_write(writing), unknown_hosts(silent)
    slowness = LeaseTimes(min(lengths, default=config.home_lease_ms) / 1000).too_slow(standing.round_trip_s)
    if as_json:
        shown = {
            "home": incarnation,
            "primary": standing.holder if standing.remaining_s else None,
            "last_primary": standing.holder or None,
            "addresses": standing.addresses,
            "term": standing.term.number,
            "lease_s": standing.remaining_s,
            "since": None if standing.since is None else utc(standing.since),
            "why": standing.why or None,
            "is_vouched": standing.is_vouched,
            "went_back": standing.went_back or None,
            "obstacle": standing.obstacle or None,
            "two_hosts_write": writable,
            "silent_hosts": silent,
            "missing_standbys": missing,
            "round_trip_s": standing.round_trip_s,
            "slowness": slowness,
            "servers": [each._asdict() for each in servers],
            "members": [_as_json(each) for each in members],
            "logs": {key: head.number for key, head in sorted(heads.items())},
        }
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo(f"home {incarnation}, term {standing.term.number}")
    if standing.remaining_s:
        where = "".join(f", {protocol} {url}" for protocol, url in sorted(standing.addresses.items()))
        click.echo(f"primary: {standing.holder}{where}; its lease expires in {standing.remaining_s:.1f} s")
        if standing.since is not None:
            click.echo(f"since {utc(standing.since)}: {standing.why}")
    else:
        click.echo(f"no primary; the last one was {standing.holder or 'none'}")
    if not standing.is_vouched:
        remedy = "" if standing.is_weakened else ". See headwater home refill, and accept-loss"
        click.echo(f"no server may append: {standing.obstacle}{remedy}")
    elif writable is None:
        click.echo(_proved(members, standing.term.number))
    if writable is not None:
        click.echo(f"no server may append: {writable}")
    for note in filter(None, (unknown, missing, slowness)):
        click.echo(f"note: {note}")
    for each in servers:
        click.echo(f"server {each.name}: {_described(each)}")
    for member in members:
        click.echo(f"member {member.name}: {_proves(member)}")
    for key, head in sorted(heads.items()):
        click.echo(f"{key}: {head.number}")


@home.command(
    epilog=examples(
        "headwater home refill --data /var/lib/headwater --home postgresql://headwater@db.example/headwater"
    )
)
@config_option
@setting_options("home", "data")
def refill(file: Path | None, **flags: object) -> None:
    """Restore events that the database lost from the copy of a stopped server.

    Use it after a restore, or after the promotion of a standby that lacks the newest events, as long as no other events
    have the numbers of the missing ones. Events keep their numbers, and logs keep their incarnations.
    Stop all servers first. Start with the copy of the last primary, and start all servers afterwards. If this is
    interrupted, run it again.
    """
    from ..homes.refill import refill as fill
    from .surplus import described

    config = load_config(file, flags)
    with opened_home(home_address(file, flags)) as opened:
        added, obstacle = fill(opened, config.data, f"{socket.gethostname()}:{config.http.port}")
    for each in added:
        click.echo(f"{described(each)}: restored to the home")
    click.echo("the home contains all events of this copy")
    if obstacle:
        click.echo(f"no server may append yet: {obstacle}")


@home.command(
    "accept-loss",
    epilog=examples(
        "headwater home accept-loss --data /var/lib/headwater --home postgresql://headwater@db.example/headwater"
    ),
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--export", type=LocalPath(file_okay=False, path_type=Path), metavar="DIR",
              help="Where to write the discarded events.  [default: given-up-TIME]")  # fmt: skip
@config_option
@setting_options("home", "home_lease_ms", "data")
def accept_loss(yes: bool, export: Path | None, file: Path | None, **flags: object) -> None:
    """Continue with the present database, although it may lack acknowledged events.

    Try headwater home refill first. Each log becomes a new incarnation: its numbers continue far above the old ones,
    and old positions are refused. Events that the copy in --data has and the database lacks are first listed and
    written to files for headwater import. Accepts nothing and exits with 1 while a server whose copy is ahead is
    running, a copy other than --data is known to be ahead, two hosts of the address accept writes, or commits do not
    wait for standbys as declared.

    A complete database does not need this command: once every server has compared its copy with it, one of them
    continues. If a server never comes back, remove it with headwater home forget.
    """
    from .surplus import copy_of, export_given_up

    config = load_config(file, flags)
    with opened_home(home_address(file, flags)) as opened:
        standing = opened.standing()
        copy = copy_of(opened, config.data, is_named=flags["set_data"] is not None)
        if standing.is_vouched:
            click.echo("nothing to accept: the home matches the history that its servers have seen")
            if flags["set_data"] is not None:
                export_given_up(opened, config.data, export)
            return
        click.echo(standing.obstacle)
        hosts = _of_hosts(opened)
        for each in hosts:
            click.echo(each.text)
        is_refused = _has_problem(hosts) or standing.is_weakened or _keeps_from_accepting(opened.servers())
        is_ahead = not is_refused and copy is not None and export_given_up(opened, config.data, export)
        if is_refused or _has_more(opened.members(), copy):
            click.echo("nothing was accepted")
            click.get_current_context().exit(REFUSED)
        if not yes:
            confirm(
                "Events that were acknowledged may be lost permanently. Continue?",
                "events that were acknowledged may be lost",
            )
        for name in opened.accept(config.home_lease_ms / 1000):
            click.echo(f"{name} is no longer a member: its copy was not compared with this database, or is ahead of it")
    if is_ahead:
        click.echo(
            f"move {config.data} aside before you start its server; with an empty directory, the server fetches all "
            "data of the home"
        )
    click.echo("accepted; a server takes over when the last primary's lease has expired")


def _has_more(members: list[Member], exported: str | None) -> bool:
    """Whether a copy other than the exported one is known to be ahead. Prints which one."""
    ahead = [each for each in members if each.ahead and each.evidence.id != exported]
    for each in ahead:
        click.echo(
            f"the copy of {each.name} is ahead of the home ({each.ahead}): run this there, with --data; if "
            f"its events are not needed, or are stored elsewhere: headwater home forget {each.name}"
        )
    return bool(ahead)


def _keeps_from_accepting(servers: list[ServerReport]) -> bool:
    """Whether a running server would mark the home again, or serve events that the home lacks. Prints which one."""
    is_kept = False
    for each in servers:
        if not each.runs:
            hint = "start it with an empty data directory, and keep the old one"
            click.echo(f"note: server {each.name} last reported {each.heard_s:.0f} s; {hint}")
        elif each.ahead:
            click.echo(
                f"server {each.name} is ahead of the home ({each.ahead}): stop it and move its data directory aside"
            )
            is_kept = True
        elif each.lag_s is None or each.lag_s > COMPARED_S:
            click.echo(f"server {each.name} has not compared its copy with the home yet: wait a moment, or stop it")
            is_kept = True
    return is_kept


@home.command(
    epilog=examples("headwater home forget b.example:8080 --home postgresql://headwater@db.example/headwater")
)
@click.argument("name")
@config_option
@setting_options("home")
def forget(name: str, file: Path | None, **flags: object) -> None:
    """Remove a server that is permanently gone from the members of a home.

    After a change of the database, no server appends until the copy of every member was compared with it. NAME is the
    name in `home status`. If the server runs with a new copy, only its former copies are removed. If it was the last
    primary, a changed database cannot be proved complete until another server has been the primary. If its copy is
    ahead of the home, the loss must still be accepted.
    """
    with opened_home(home_address(file, flags)) as opened:
        copies = sum(each.name == name for each in opened.members())
        if copies == 1 and any(each.name == name and each.runs for each in opened.servers()):
            raise StorageUnavailable(f"the server {name} is running, or stopped less than 10 s ago; stop it and wait")
        if not opened.forget_member(name):
            known = ", ".join(each.name for each in opened.members()) or "none"
            raise StorageUnavailable(f"{name} is not a member of this home; its members are: {known}")
        obstacle = opened.standing().obstacle
    click.echo(f"{name} is no longer a member; its copy is ignored")
    if obstacle:
        click.echo(f"no server may append: {obstacle}")


@home.command(
    epilog=examples("headwater home promotion waited-for --home postgresql://owner@db.example/headwater"),
)
@click.argument("value", type=click.Choice(PROMOTIONS))
@config_option
@setting_options("home")
def promotion(value: str, file: Path | None, **flags: object) -> None:
    """Declare which events a promoted standby of the database has. Run it as the owner of the tables.

    ask: nothing is assumed; copies are compared, and an operator decides if they prove nothing. waited-for: commits
    wait for every named standby. managed: a tool or provider promotes only complete standbys. With the latter two,
    servers continue at once unless a copy is known to be ahead.

    A new value starts a new term. With waited-for, appends stop if synchronous_standby_names is changed so that commits
    no longer wait for every named standby; choose ask to continue without waiting.
    """
    from ..homes.postgres.schema import set_promotion

    with connected_owner(home_address(file, flags)) as connection:
        set_promotion(connection, value)
    click.echo(f"promotion is now {value}")


@home.command(epilog=examples("headwater home upgrade --home postgresql://owner@db.example/headwater"))
@click.option("--role", metavar="NAME", help="Also grant this role the new privileges of a server.")
@config_option
@setting_options("home")
def upgrade(role: str | None, file: Path | None, **flags: object) -> None:
    """Upgrade the tables of a home to the version of this headwater.

    Replace all servers first; new ones also work with the previous version of the home. Nothing is changed while a
    server that does not know the new version is connected. Older servers do not start afterwards.
    """
    from ..homes.postgres.upgrade import upgrade as bring

    with connected_owner(home_address(file, flags)) as connection:
        before, now = bring(connection, role)
    if before == now:
        click.echo(f"nothing to do: the home has version {now}")
    else:
        click.echo(f"upgraded the home from version {before} to {now}; its servers start a new term")


@home.command("renew-secret", epilog=examples("headwater home renew-secret --data /var/lib/headwater"))
@config_option
@setting_options("data")
def renew_secret(file: Path | None, **flags: object) -> None:
    """Replace the secret by which the servers of a home authenticate each other.

    Run it on the machine of the running primary, with its data directory. All servers adopt the new secret within
    seconds; the old one is then refused.
    """
    from ..homes.home_secret import renew_secret as renew
    from ..storage.home.copy_file import home_of
    from ..storage.state.data_directory import open_state

    data = load_config(file, flags).data
    if home_of(data) is None:
        raise StorageUnavailable(f"{data} is not a copy of a home; pass the primary's data directory with --data")
    try:
        with closing(open_state(data)) as state:
            renew(state)
    except NotPrimary:
        problem = (
            f"the server of {data} is a replica; run this on the primary's machine (headwater home status shows it)"
        )
        raise StorageUnavailable(problem) from None
    click.echo("the home has a new secret; its servers adopt it within seconds")


def _as_json(member: Member) -> dict[str, object]:
    """A member as a JSON object of `--json`."""
    said = member.evidence
    return {"name": member.name, "id": said.id, "seen": said.seen.number, "held": said.held.number or None,
            "compared": member.compared._asdict(), "ahead": member.ahead or None}  # fmt: skip


def _proved(members: list[Member], term: int) -> str:
    """Which copies could prove that the database is complete, on one line."""
    whole = [each.name for each in members if each.evidence.is_whole and each.evidence.held.number == term]
    if not whole:
        return f"proof: no copy has all of term {term}, so a changed database could not be proved complete"
    return f"proof: the database has all acknowledged events, and {', '.join(whole)} has all of term {term}"


def _proves(member: Member) -> str:
    """The evidence of a member's copy, on one line."""
    said = member.evidence
    held = (
        f"has all of term {said.held.number}, the last one that it held"
        if said.is_whole
        else "held no term, or may lack events of it"
    )
    ahead = f", ahead of the home: {member.ahead}" if member.ahead else ""
    return f"{held}; compared on timeline {member.compared.timeline}{ahead}"


def _described(server: ServerReport) -> str:
    """One server, on one line."""
    parts = [server.role]
    if server.term:
        parts.append(f"term {server.term}")
    elif server.lag_events is None or server.lag_s is None:
        parts.append("its copy may not have caught up yet")
    else:
        parts.append(f"{server.lag_events} events behind, as of {server.lag_s:.1f} s ago")
    parts += [f"{protocol} {url}" for protocol, url in sorted(server.addresses.items())]
    parts.append(f"headwater {server.version}")
    if server.ahead:
        parts.append(f"ahead of the home: {server.ahead}")
    if not server.runs:
        parts.append(f"last report {server.heard_s:.0f} s ago")
    return ", ".join(parts)


def _of_hosts(opened: PostgresHome) -> list[Finding]:
    """The findings about the hosts of the address."""
    from ..homes.postgres.hosts import both_write, unknown_hosts
    from ..homes.postgres.schema import Finding

    writing, silent = opened.writable_hosts()
    found = ((True, both_write(writing)), (False, unknown_hosts(silent)))
    return [Finding(is_problem, why) for is_problem, why in found if why is not None]


def _has_problem(found: list[Finding]) -> bool:
    return any(each.is_problem for each in found)
