"""The command `headwater pipeline archive check`. It starts no Spark, and asks no server."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from ..formats.settings.path_argument import LocalPath

NAME = ("archive", "check")
_GAPS_SHOWN = 10


@click.command(" ".join(NAME))
@click.argument("table", type=LocalPath(path_type=Path))
@click.option("--adopt", is_flag=True, help="Add missing checksums to files and to the table's log.")
@click.option("--accept-gaps", is_flag=True, help="Do not report missing sequence numbers as a problem.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_command(table: Path, adopt: bool, accept_gaps: bool, as_json: bool) -> int:
    """Verify a whole archive: checksums of all files, counts and numbers.

    Reads every file of the table in directory TABLE. Exits with 1 if a file is damaged, missing or inconsistent with
    the table, or if a number is duplicate or missing. Gaps are normal after the log was restored from a backup or the
    archiver used --accept-gap.
    """
    from .archive import checks

    adopted = checks.adopt(table) if adopt else 0
    found = checks.check(table)
    is_good = found.is_whole and (accept_gaps or not found.gaps)
    if adopt and is_good and found.unproved_since is not None:
        checks.prove(table, found)
    if as_json:
        about = {"table": str(table), **dataclasses.asdict(found), "adopted": adopted, "is_good": is_good}
        click.echo(json.dumps(about, ensure_ascii=False))
        return 0 if is_good else 1
    for problem in found.problems:
        click.echo(problem, err=True)
    for first, last in found.gaps[:_GAPS_SHOWN]:
        click.echo(f"{table}: the numbers {first} to {last} are missing", err=True)
    if (more := len(found.gaps) - _GAPS_SHOWN) > 0:
        click.echo(f"{table}: and {more:,} more gaps", err=True)
    if adopted:
        click.echo(f"added checksums to {adopted:,} files")
    click.echo(f"{table}: log {found.log}, {found.events:,} events in {found.files:,} files, {found.bytes:,} bytes")
    if found.unproved:
        click.echo(f"{found.unproved:,} files have only page checksums; --adopt adds the others")
    if found.unproved_since is not None:
        click.echo(
            f"since version {found.unproved_since} the table's log has no digest: another program committed, or a "
            f"version before 0.2; --adopt adds one{'' if is_good else ' after the problems are fixed'}"
        )
    click.echo("OK" if is_good else "NOT OK: see the problems above")
    return 0 if is_good else 1
