"""`headwater check`, `backup`, `restore`: commands on a whole data directory."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..formats.settings.declaration import BYTE_UNITS
from ..formats.settings.path_argument import LocalPath
from .options import config_option, load_config, setting_options
from .output import examples
from .progress import progress_bar

if TYPE_CHECKING:
    from ..storage import BackupReport, CheckReport, LogCheck, StateCheck

REFUSED, UNAVAILABLE, DAMAGED = 1, 4, 5
"""Exit codes: of a backup with damaged logs; of a check that found data of a newer headwater, or damage. See
`cli.main`.
"""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
directory = LocalPath(path_type=Path)


@click.command(
    epilog=examples("headwater check --data /var/lib/headwater --json", "headwater check /mnt/backup/2026-01-31")
)
@click.argument("backup", type=directory, required=False)
@click.option(
    "--accept-loss",
    "lost",
    metavar="LOG",
    help="Discard the damaged events of LOG permanently, so that it can be opened.",
)
@click.option("--repair-clock", "late", metavar="LOG", help="Set future recording times of LOG's events to now.")
@click.option(
    "--accept-state-loss",
    "state_is_lost",
    is_flag=True,
    help="Continue with the intact part of a damaged state (settings, consumers, users); the old files are kept.",
)
@click.option(
    "--adopt", "adopted", metavar="LOG", help="Serve LOG again if its directory exists but is unknown to the state."
)
@json_option
@config_option
@setting_options("data")
def check(
    backup: Path | None,
    lost: str | None,
    late: str | None,
    state_is_lost: bool,
    adopted: str | None,
    as_json: bool,
    file: Path | None,
    **flags: object,
) -> None:
    """Verify a data directory that no server uses, or a BACKUP.

    Reads everything: the state, all frames and their checksums, the order of the numbers, and the index. Changes
    nothing without one of the options below. Exits with 0 if everything is intact, with 5 if something is damaged, and
    with 4 if a newer version of headwater wrote some of it.
    """
    from ..storage import accept_loss, accept_state_loss, adopt_log, check_directory, repair_clock
    from ..storage.append.clock import show_ms
    from ..storage.repair.manifest import read_manifest

    data = load_config(file, flags).data
    if backup is not None:
        if lost or late or state_is_lost or adopted:
            raise click.UsageError("a backup cannot be changed; restore it and repair the new directory")
        read_manifest(backup)
        data = backup
    if state_is_lost:
        for given_up in accept_state_loss(data):
            click.echo(f"discarded: {given_up}", err=True)
    if adopted is not None:
        click.echo(f"{adopted}: {adopt_log(data, adopted)} is now the directory of this log", err=True)
    if lost is not None:
        for first, last in accept_loss(data, lost):
            click.echo(f"{lost}: events {first} to {last} were discarded", err=True)
    if late is not None:
        if (found := repair_clock(data, late)) is None:
            click.echo(f"{late}: no events are recorded in the future", err=True)
        else:
            events = f"events {found.first} to {found.last}, recorded from {show_ms(found.recorded_at)} on"
            click.echo(f"{late}: {events} now count as recorded at {show_ms(found.taken_as)}; ", nl=False, err=True)
            click.echo(f"recorded_at decreases at event {found.last + 1}", err=True)
    with progress_bar("checking") as progress:
        report = check_directory(data, progress)
    if as_json:
        click.echo(json.dumps({"is_sound": report.is_sound, **asdict(report)}, indent=2))
    else:
        click.echo(f"state: {_verdict(report.state)} ({report.state.entries} entries)")
        for finding in (*report.state.problems, *report.state.newer, *report.state.notes):
            click.echo(f"  {finding}")
        for log in report.logs:
            extent = f"{log.events} events, {log.frames} frames, {log.segments} segments, {_size(log.bytes)}"
            click.echo(f"{log.name}: {_verdict(log)} ({extent})")
            for finding in (*log.problems, *log.newer, *log.notes):
                click.echo(f"  {finding}")
            for event in log.unfit:
                how = "as a stub" if event.is_stub else "without an attribute"
                click.echo(f"  event {event.sequence_number} is delivered {how}: {event.reason}")
            if (more := log.unfit_events - len(log.unfit)) > 0:
                click.echo(f"  and {more} more such events")
        for finding in (*report.problems, *report.newer, *report.notes):
            click.echo(finding)
        click.echo(f"{data} {_summary(report)}")
    if not report.is_sound:
        click.get_current_context().exit(DAMAGED if report.is_damaged else UNAVAILABLE)


@click.command(epilog=examples("headwater backup /mnt/backup/2026-01-31 --data /var/lib/headwater"))
@click.argument("target", type=directory)
@json_option
@config_option
@setting_options("data")
def backup(target: Path, as_json: bool, file: Path | None, **flags: object) -> None:
    """Back up a data directory to TARGET, with or without a running server, and verify the copy.

    TARGET must be new or empty. The copy contains every event acknowledged before the command started. Damaged logs are
    copied unchanged and listed with the numbers of their events; the exit code is then 1. Remove older backups only
    after exit code 0.
    """
    from ..storage import backup as copy

    config = load_config(file, flags)
    with progress_bar("copying") as progress:
        report = copy(config.data, target, progress)
    _show(as_json, f"{config.data} was backed up to {target}", report)
    if report.damaged:
        click.get_current_context().exit(REFUSED)


@click.command(epilog=examples("headwater restore /mnt/backup/2026-01-31 /var/lib/headwater"))
@click.argument("source", metavar="BACKUP", type=directory)
@click.argument("target", metavar="DIR", type=directory)
@click.option("--accept-damage", "accepts_damage", is_flag=True, help="Also restore damaged logs, unrepaired.")
@json_option
def restore(source: Path, target: Path, accepts_damage: bool, as_json: bool) -> None:
    """Restore a BACKUP to a new data directory DIR.

    Every file is compared with its checksum; DIR cannot be served before all match. DIR must be new or empty. Each
    restored log is a new incarnation: events keep their numbers, and new ones continue above every number ever issued.
    """
    from ..storage import restore as copy

    with progress_bar("copying") as progress:
        report = copy(source, target, progress, accepts_damage=accepts_damage)
    _show(as_json, f"{target} was restored from {source}", report)


def _verdict(found: StateCheck | LogCheck) -> str:
    if found.problems:
        return f"{len(found.problems)} problems"
    return "written by a newer headwater" if found.newer else "sound"


def _summary(report: CheckReport) -> str:
    if report.is_damaged:
        return "is damaged"
    return "was written by a newer headwater; use a newer headwater" if report.is_newer else "is sound"


def _show(as_json: bool, sentence: str, report: BackupReport) -> None:
    for name, problems in report.damaged.items():
        for problem in problems:
            click.echo(f"{name} is damaged: {problem}", err=True)
    if not report.is_proved:
        click.echo("this backup was made by an earlier version, without file checksums; run headwater check", err=True)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    else:
        click.echo(f"{sentence}: {len(report.logs)} logs, {report.files} files, {_size(report.bytes)}")


def _size(count: int) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        if count >= BYTE_UNITS[unit]:
            return f"{count / BYTE_UNITS[unit]:.1f} {unit}"
    return f"{count} B"
