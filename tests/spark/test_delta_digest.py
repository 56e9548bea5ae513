"""Digests of Delta tables: what a writer expects, who else commits, and tables from before there were any."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from datetime import date, datetime
from hashlib import blake2b
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.spark.archive import table as archive_table
from headwater.spark.archive.checks import adopt, check
from headwater.spark.archive.columns import TABLE_SCHEMA
from headwater.spark.archive.compaction import compact, vacuum
from headwater.spark.archive.errors import ArchiveError, ArchiveUnreadable, CompactionOvertaken, NotAnArchive
from headwater.spark.archive.snapshot import Archive, snapshot
from headwater.spark.archive.table import ArchiveTable
from headwater.spark.check_command import check_command
from headwater.spark.delta import table as delta_table
from headwater.spark.delta.digest import Description, added_digests, state_digest
from headwater.spark.delta.table import Table, create_table
from headwater.spark.projection.table import Definition, StateTable

from .archive_tables import CLAIM, add, archive

FAR = date(2100, 1, 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1))
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "number": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "text": (pa.string(), TEXTS),
    "moment": (pa.timestamp("us", tz="UTC"), MOMENTS.map(lambda moment: f"{moment.isoformat('T', 'milliseconds')}Z")),
    "part": (pa.string(), TEXTS.filter(bool)),
}


def entries(root: Path) -> list[Path]:
    return sorted((root / "_delta_log").glob("*.json"))


def make_older(root: Path) -> None:
    """As a version before 0.2 would have left the table: no entry has a digest."""
    for path in entries(root):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            for name in ("headwater.state", "headwater.seal"):
                action.get("commitInfo", {}).pop(name, None)
        kept = [action for action in actions if action.get("txn", {}).get("appId") != "headwater"]
        path.write_text("\n".join(map(json.dumps, kept)))


def commit_of_another_program(root: Path) -> int:
    """The version that it makes."""
    DeltaTable(root).alter.set_table_properties({"colour": "blue"}, raise_if_not_exists=False)
    return DeltaTable(root).version()


def flip(path: Path, text: bytes) -> None:
    """The last digit of that text in the file is another one."""
    content = path.read_bytes()
    at = content.index(text) + len(text) - 1
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def check_by_command(root: Path, *options: str) -> Result:
    return CliRunner().invoke(check_command, [str(root), *options], standalone_mode=False)


@given(st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_writer_knows_the_digest_of_what_it_is_about_to_commit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever the statistics are: otherwise the next open would refuse a table that is whole."""
    root = tmp_path_factory.mktemp("table")
    columns = pa.schema([(name, type) for name, (type, _) in VALUES.items()])
    configuration = {"a": data.draw(TEXTS)}
    create_table(root, Description(Schema.from_arrow(columns), ["part"], None, data.draw(TEXTS), configuration))
    table = Table(root, NotAnArchive)
    for at in range(2):
        known = [name for name in VALUES if name != "part" and data.draw(st.booleans())]
        draw = {name: data.draw(VALUES[name][1]) for name in VALUES}
        bounds = {name: draw[name] for name in known}
        stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": dict.fromkeys(known, 0)}
        action = AddAction(
            f"{at}.parquet", at, {"part": str(draw["part"])}, at, True, json.dumps(stats, ensure_ascii=False)
        )
        assert table.commit([action], {"of-ours": at})
        table.refresh()
    assert table.commit_properties({"b": data.draw(TEXTS)})
    table.sum_up()
    assert Table(root, NotAnArchive).unproved_since is None


def test_a_digest_is_the_same_whichever_versions_of_libraries_compute_it() -> None:
    """If this fails after an update, that version would refuse each table there is."""
    stats = {
        "numRecords": 2,
        "minValues": {"sequence_number": 1, "recorded_at": "2026-11-20T12:00:01.000Z", "type": "A\u00e9\U00020000"},
        "maxValues": {"sequence_number": 2, "recorded_at": "2026-11-20T12:00:02.005Z", "type": "B"},
        "nullCount": {"sequence_number": 0, "recorded_at": 0, "type": 0},
    }
    schema = Schema.from_arrow(TABLE_SCHEMA)
    action = AddAction("a b.parquet", 3, {"date": "2026-11-20"}, 4, True, json.dumps(stats, ensure_ascii=False))
    (digest,) = added_digests([action], schema).values()
    description = Description(schema, ["date"], "orders", None, {"delta.appendOnly": "true", "a": "\u00e9"})
    assert f"{digest:032x}" == "9d907b0818a29ff10df3716266b9b250"
    assert state_digest([digest], description) == "24ca20ac533201dafcc4c667d4d540b5"


def test_a_table_that_another_program_changed_says_so_until_it_is_checked(tmp_path: Path) -> None:
    table = archive(tmp_path, 20)
    assert snapshot(tmp_path).unproved_since is None
    version = commit_of_another_program(tmp_path)
    assert snapshot(tmp_path).unproved_since == version
    add(table, 10)
    compact(tmp_path, before=FAR)
    assert snapshot(tmp_path).unproved_since == version  # a commit of ours proves nothing of what was before
    assert check(tmp_path).unproved_since == version
    told = check_by_command(tmp_path)
    assert f"since version {version} the table's log has no digest" in told.output
    told = check_by_command(tmp_path, "--adopt", "--json")
    assert json.loads(told.output)["unproved_since"] is None
    assert snapshot(tmp_path).unproved_since is None
    assert snapshot(tmp_path).archived == 30


def test_a_projection_that_another_program_changed_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    StateTable.create(tmp_path, Definition("orders", "first-life", "order", "totals", "", 1, 4))
    assert caplog.messages == []
    version = commit_of_another_program(tmp_path)
    for _ in range(2):
        StateTable(tmp_path)
    (said,) = caplog.messages
    assert f"{tmp_path}: since version {version} the table's log has no digest" in said
    assert "fold the log into a new table" in said


def test_a_vacuum_by_another_program_changes_nothing(tmp_path: Path) -> None:
    table = archive(tmp_path, 20, batches=2)
    compact(tmp_path, before=FAR)
    DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert DeltaTable(tmp_path).history(1)[0]["operation"] == "VACUUM END"
    assert snapshot(tmp_path).unproved_since is None
    flip(entries(tmp_path)[0], b'"headwater.first":"1')
    with pytest.raises(NotAnArchive, match="its files or properties do not match its digest"):
        snapshot(tmp_path)
    flip(entries(tmp_path)[0], b'"headwater.first":"0')
    add(table, 10)
    assert snapshot(tmp_path).unproved_since is None


def test_what_we_commit_after_another_program_is_compared_again(tmp_path: Path) -> None:
    table = archive(tmp_path, 20)
    commit_of_another_program(tmp_path)
    add(table, 10)
    flip(entries(tmp_path)[-2], b'"colour":"blue')
    with pytest.raises(NotAnArchive, match="its files or properties do not match its digest"):
        snapshot(tmp_path)


def test_an_older_table_is_read_and_proved_by_a_check(tmp_path: Path) -> None:
    archive(tmp_path, 20, batches=2)
    make_older(tmp_path)
    assert snapshot(tmp_path).unproved_since == 0
    add(ArchiveTable(tmp_path), 5)
    assert snapshot(tmp_path).unproved_since == 0
    told = check_by_command(tmp_path, "--adopt")
    assert (told.return_value, told.output.splitlines()[-1]) == (0, "OK")
    found = snapshot(tmp_path)
    assert (found.unproved_since, found.archived) == (None, 25)


def test_an_older_table_that_lacks_events_is_not_proved(tmp_path: Path) -> None:
    archive(tmp_path, 30, batches=3)
    make_older(tmp_path)
    middle = entries(tmp_path)[-2]
    middle.write_text("\n".join(line for line in middle.read_text().splitlines() if '"add"' not in line))
    told = check_by_command(tmp_path, "--adopt")
    assert told.return_value == 1
    assert "the numbers 11 to 20 are missing" in told.output
    assert snapshot(tmp_path).unproved_since == 0


def test_a_table_is_not_proved_by_a_check_of_what_another_program_has_changed_since(tmp_path: Path) -> None:
    table = archive(tmp_path, 20)
    make_older(tmp_path)
    adopt(tmp_path)
    checked = check(tmp_path)
    add(table, 5)  # of ours: it does no harm
    commit_of_another_program(tmp_path)
    with pytest.raises(ArchiveError, match=f"another program committed after version {checked.version}"):
        ArchiveTable(tmp_path).prove(checked.version)
    assert snapshot(tmp_path).unproved_since == 0


def test_an_entry_that_does_not_say_who_wrote_it_is_not_that_of_another_program(tmp_path: Path) -> None:
    archive(tmp_path, 20)
    (tmp_path / "_delta_log" / f"{len(entries(tmp_path)):020d}.json").write_text('{"txn":{"appId":"a","version":1}}')
    with pytest.raises(NotAnArchive, match="it does not name exactly one writer"):
        snapshot(tmp_path)


@pytest.mark.parametrize(
    "told",
    [
        {"version": 4, "operation": "OPTIMIZE", "clusterId": "trino-455-a", "readVersion": 3},
        {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "clientVersion": "delta-rs.0.21.0"},
    ],
    ids=["Trino", "older delta-rs"],
)
def test_programs_that_do_not_name_their_engine_may_commit(tmp_path: Path, told: dict[str, object]) -> None:
    """Delta's protocol leaves it to them how they say who they are."""
    table = archive(tmp_path, 20, batches=2)
    assert table.state.version == 3
    actions = [{"commitInfo": told}, {"txn": {"appId": "theirs", "version": 1}}]
    (tmp_path / "_delta_log" / f"{4:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    assert snapshot(tmp_path).unproved_since == 4
    add(table, 10)
    assert snapshot(tmp_path).archived == 30


def test_an_entry_that_lacks_its_middle_is_not_that_of_another_program(tmp_path: Path) -> None:
    """What is left is JSON: the begin of the first line, and the end of the last one."""
    archive(tmp_path, 20)
    newest = entries(tmp_path)[-1]
    content = newest.read_text()
    for begin, end in ((".6.6", "ater"), ("perationParameters", "ppId"), ('ion":"WRITE', 'ion":')):
        newest.write_text(content[: content.index(begin)] + content[content.rindex(end) :])
        assert json.loads(newest.read_text())["commitInfo"]
        with pytest.raises(NotAnArchive, match="it does not name the program and operation"):
            snapshot(tmp_path)


def test_an_entry_of_a_newer_headwater_is_not_called_damaged(tmp_path: Path) -> None:
    """Whoever restores an older log then loses what is archived since."""
    archive(tmp_path, 20)
    newest = entries(tmp_path)[-1]
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    (told,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    told["headwater.state"]["form"] = 2
    text = json.dumps(told["headwater.state"], sort_keys=True)
    told["headwater.seal"] = blake2b(text.encode(), digest_size=16).hexdigest()
    newest.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(NotAnArchive, match=r"was written by a newer headwater; use a newer headwater$"):
        snapshot(tmp_path)


def test_a_commit_that_the_table_does_not_allow_is_no_conflict(tmp_path: Path) -> None:
    """Another program has asked for features that our writer has not: trying again does not help."""
    table = archive(tmp_path, 20)
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "identityColumns"]}
    told = {"operation": "UPGRADE PROTOCOL", "engineInfo": "another"}
    actions = [{"commitInfo": told}, {"protocol": features}]
    path = tmp_path / "_delta_log" / f"{table.state.version + 1:020d}.json"
    path.write_text("\n".join(map(json.dumps, actions)))
    assert snapshot(tmp_path).archived == 20
    with pytest.raises(
        NotAnArchive, match=r"cannot commit to the table: Unsupported table features required: .*IdentityColumns"
    ):
        add(table, 10)
    with pytest.raises(NotAnArchive, match="cannot commit to the table"):
        table.follow_log("second-life")


def test_a_lost_newest_entry_is_the_version_before(tmp_path: Path) -> None:
    """Nothing in the table says that there was a later one; the log's consumer does, when the archiver begins."""
    archive(tmp_path, 20, batches=2)
    entries(tmp_path)[-1].unlink()
    assert snapshot(tmp_path).archived == 10


def test_every_version_is_compared_with_its_own_digest(tmp_path: Path) -> None:
    table = archive(tmp_path, 20, batches=4)
    assert [snapshot(tmp_path, version).archived for version in range(2, 6)] == [5, 10, 15, 20]
    table.sum_up()
    add(table, 5)
    for path in entries(tmp_path)[:5]:
        path.unlink()
    assert [snapshot(tmp_path, version).archived for version in (5, 6)] == [20, 25]
    entries(tmp_path)[0].unlink()
    assert snapshot(tmp_path).archived == 25
    with pytest.raises(NotAnArchive, match=r"version 5 of the table .*: its entry is missing"):
        snapshot(tmp_path, 5)


def test_entries_stay_where_the_checkpoint_cannot_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = archive(tmp_path, 20, batches=4)
    found = delta_table.newest_checkpoint

    def damaged(path: Path) -> tuple[int, list[Path]]:
        version, files = found(path)
        for file in files:
            if file.suffix == ".parquet":
                file.write_bytes(file.read_bytes()[:-100])
        return version, files

    monkeypatch.setattr(delta_table, "newest_checkpoint", damaged)
    before = entries(tmp_path)
    with pytest.raises(NotAnArchive, match="the Delta table cannot be read"):
        table.sum_up()
    assert entries(tmp_path) == before


def test_a_panic_of_the_delta_library_is_an_error_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path, 20)
    panic = type("PanicException", (BaseException,), {})

    def panics(*_: object, **__: object) -> None:
        raise panic("index out of bounds")

    monkeypatch.setattr(delta_table, "DeltaTable", panics)
    with pytest.raises(NotAnArchive, match=r"index out of bounds; if its _delta_log is damaged, restore"):
        snapshot(tmp_path)


def test_an_empty_vacuum_makes_no_commit(tmp_path: Path) -> None:
    archive(tmp_path, 20, batches=2)
    compact(tmp_path, before=FAR)
    before = entries(tmp_path)
    assert vacuum(tmp_path, 0) == 2
    assert entries(tmp_path) == before
    assert check(tmp_path).is_whole


def test_those_who_commit_beside_each_other_make_no_false_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archiver, compactions, adoption, and readers of versions old and new, while checkpoints are written."""
    monkeypatch.setattr(archive_table, "CHECKPOINT_COMMITS", 7)
    archive(tmp_path, 5)
    done, errors = threading.Event(), list[BaseException]()

    def repeat(step: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                while not done.is_set():
                    step()
            except BaseException as error:
                errors.append(error)
                done.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def compact_once() -> None:
        with contextlib.suppress(CompactionOvertaken):
            compact(tmp_path, before=FAR)

    def read_once() -> None:
        newest = snapshot(tmp_path)
        older = snapshot(tmp_path, random.randrange(2, newest.version + 1))
        assert older.archived <= newest.archived
        assert newest.events == newest.archived
        assert newest.unproved_since is older.unproved_since is None

    random = Random(0)
    threads = [repeat(compact_once), repeat(read_once), repeat(lambda: adopt(tmp_path))]
    table = ArchiveTable(tmp_path)
    for _ in range(40):
        if not done.is_set():
            add(table, 2)
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    found = check(tmp_path)
    assert (found.problems, found.gaps, found.events) == ([], [], 85)
    assert snapshot(tmp_path).unproved_since is None
    assert table.state.claim == CLAIM


@pytest.mark.parametrize("name", ["with space", "50%", "ü#?"])
def test_the_digest_is_found_in_any_directory(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    archive(root, 20, batches=2)
    compact(root, before=FAR)
    assert vacuum(root, 0) == 2
    assert snapshot(root).unproved_since is None
    assert Archive(str(root)).next_number("orders") == 21


def test_damage_names_the_version_and_what_to_do(tmp_path: Path) -> None:
    archive(tmp_path, 20)
    flip(entries(tmp_path)[-1], b'numRecords\\": 2')
    with pytest.raises(
        ArchiveUnreadable,
        match=r"version 2 of the table does not match its commit: its files or properties do not match its digest; "
        r"_delta_log/0{19}2.json, an entry before it or a checkpoint is damaged; restore _delta_log from a backup",
    ):
        snapshot(tmp_path)
