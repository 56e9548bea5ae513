"""Files of a lake: a bit that is flipped in one is an error that names the file, for all that read it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.core.errors import InvalidInput
from headwater.core.query import ALL
from headwater.core.settings import LogSettings
from headwater.formats.files import parquet
from headwater.formats.files.tabular import TableMapping
from headwater.spark.archive import staging
from headwater.spark.archive.columns import FILE_SCHEMA
from headwater.spark.archive.compaction import compact
from headwater.spark.archive.errors import ArchiveIncomplete, ArchiveUnreadable
from headwater.spark.archive.slices import archive_slices, read_archived
from headwater.spark.archive.snapshot import Archive, snapshot
from headwater.spark.archive.staging import batch_directory, inspect
from headwater.spark.jobs.import_.files import look_at
from headwater.spark.jobs.import_.pieces import pieces_of
from headwater.spark.jobs.import_.quarantine import BadRow, write_bad_rows
from headwater.spark.jobs.import_.reader import read_piece
from headwater.spark.jobs.metrics.table import append
from headwater.spark.projection import NotAProjection
from headwater.spark.projection import snapshot as states_of
from headwater.spark.projection.buckets import write
from headwater.spark.projection.fold import Row
from headwater.spark.projection.table import BucketFile, Definition, StateTable

from ..night import IS_NIGHT
from ..parquet_damage import columns_of, flip_in, hide_page, taken_for_others
from .archive_tables import CLAIM, NOON, archive, rows, stage

DAY_AFTER = date(2026, 11, 21)
COLUMNS = tuple(FILE_SCHEMA.names)


def events(root: Path) -> list[dict[str, object]]:
    """What the data source reads of the archive."""
    slices = archive_slices(
        Archive(str(root)), "orders", 0, 200, ALL, split_bytes=1 << 20, split_events=None, splits_min=1
    )
    batches = [batch for each in slices for batch in read_archived(each, COLUMNS, ALL, None)]
    return pa.Table.from_batches(batches).to_pylist()


def only_file(root: Path) -> Path:
    (file,) = snapshot(root).files
    return Path(file.path)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are verified chunk by chunk, as large ones are."""
    monkeypatch.setattr(parquet, "_WHOLE_BYTES_MAX", 0)


@pytest.mark.parametrize("limit", [0, parquet._WHOLE_BYTES_MAX], ids=["large", "small"])
def test_an_archive_serves_no_flipped_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(parquet, "_WHOLE_BYTES_MAX", limit)
    archive(tmp_path, 200)
    others, refused = taken_for_others(only_file(tmp_path), lambda: events(tmp_path), ArchiveUnreadable)
    assert others == 0
    assert refused > 50


@pytest.mark.usefixtures("large")
def test_a_page_that_parquet_would_skip_is_missed(tmp_path: Path) -> None:
    """Without it, all that follows in the column would belong to other events."""
    archive(tmp_path, 200)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    for column in columns_of(path):
        hide_page(path, column)
        with pytest.raises(ArchiveUnreadable, match=f"{path.name}: the file is damaged: a column does not match"):
            events(tmp_path)
        path.write_bytes(whole)


@pytest.mark.usefixtures("large")
def test_a_footer_that_was_flipped_is_refused(tmp_path: Path) -> None:
    archive(tmp_path, 200)
    path, before = only_file(tmp_path), events(tmp_path)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    for at in range(len(whole) - footer, len(whole), 1 if IS_NIGHT else 53):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(ArchiveUnreadable, match=f"{path.name}: the file is damaged: the footer does not match"):
            events(tmp_path)
    path.write_bytes(whole)
    assert events(tmp_path) == before


def test_files_of_older_versions_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names have no checksums. A page that Parquet would skip is missed; compaction adds checksums."""
    monkeypatch.setattr(staging, "add_checksums", lambda path: path)
    archive(tmp_path, 200, batches=2)
    monkeypatch.undo()
    first, _ = (Path(file.path) for file in snapshot(tmp_path).files)
    assert ".crc-" not in first.name
    whole, before = first.read_bytes(), events(tmp_path)
    assert len(before) == 200
    hide_page(first, "id")
    with pytest.raises(ArchiveUnreadable, match=f"{first.name}: the file cannot be read: .*if it is damaged"):
        events(tmp_path)
    first.write_bytes(whole)
    compact(tmp_path, before=DAY_AFTER)
    assert ".crc-" in only_file(tmp_path).name
    assert events(tmp_path) == before


def test_a_time_is_not_looked_up_in_flipped_bits(tmp_path: Path) -> None:
    archive(tmp_path, 200)
    others, refused = taken_for_others(
        only_file(tmp_path),
        lambda: Archive(str(tmp_path)).sequence_number_at("orders", NOON + 100_500),
        ArchiveUnreadable,
    )
    assert others == 0
    assert refused > 0


def test_compaction_refuses_a_flipped_bit_and_leaves_the_table_as_it_is(tmp_path: Path) -> None:
    archive(tmp_path, 200, batches=2)
    first, _ = (Path(file.path) for file in snapshot(tmp_path).files)
    whole, before = first.read_bytes(), sorted(tmp_path.rglob("*"))
    for column in columns_of(first):
        flip_in(first, column)
        with pytest.raises(ArchiveUnreadable, match=f"{first.name}: the file is damaged.*; restore this file"):
            compact(tmp_path, before=DAY_AFTER)
        assert [each for each in sorted(tmp_path.rglob("*")) if each.is_file()] == [p for p in before if p.is_file()]
        assert len(snapshot(tmp_path).files) == 2
        first.write_bytes(whole)
    compact(tmp_path, before=DAY_AFTER)
    assert len(snapshot(tmp_path).files) == 1


def test_files_that_interleave_are_not_joined_with_a_flipped_bit(tmp_path: Path) -> None:
    table = archive(tmp_path)
    odd = stage(tmp_path, 0, range(1, 50, 2), count=lambda after, upto: 25)
    even = stage(tmp_path, 100, range(102, 152, 2), count=lambda after, upto: 25)
    between = stage(tmp_path, 50, range(51, 150, 2), count=lambda after, upto: 50)
    assert odd and even and between
    table.commit([*odd.files, *even.files, *between.files], 0, 151, CLAIM)
    flip_in(tmp_path / between.files[0].path, "data")
    with pytest.raises(ArchiveUnreadable, match="the file does not match its checksum"):
        compact(tmp_path, before=DAY_AFTER)
    assert len(snapshot(tmp_path).files) == 3


def test_what_was_staged_is_read_back_whole(tmp_path: Path) -> None:
    staged = stage(tmp_path, 0, range(1, 201))
    assert staged is not None
    path = tmp_path / staged.files[0].path
    whole = path.read_bytes()
    for column in columns_of(path):
        flip_in(path, column)
        with pytest.raises(ArchiveIncomplete, match=f"{path.name} cannot be read back: the file is damaged"):
            inspect(tmp_path, batch_directory(tmp_path, 0, CLAIM), 0, lambda after, upto: upto - after)
        path.write_bytes(whole)


def test_what_compaction_writes_has_checksums(tmp_path: Path) -> None:
    archive(tmp_path, 200, batches=2)
    compact(tmp_path, before=DAY_AFTER)
    assert taken_for_others(only_file(tmp_path), lambda: events(tmp_path), ArchiveUnreadable)[0] == 0


def test_a_projection_serves_no_flipped_bit(tmp_path: Path) -> None:
    table = StateTable.create(tmp_path, Definition("orders", "first-life", "order", "totals", "", 1, 1))
    states = {f"order-{number}": Row(b'{"total":%d}' % (number * 17), number, number % 5) for number in range(1, 400)}
    path = write(tmp_path / "states" / "0000.parquet", states)
    table.commit([BucketFile(0, f"states/{path.name}", path.stat().st_size, len(states))], 0, 400)
    others, refused = taken_for_others(path, lambda: states_of(tmp_path), NotAProjection)
    assert others == 0
    assert refused > 50


def test_a_table_of_metrics_has_checksums(tmp_path: Path) -> None:
    begin = pa.array([NOON * 1000 + number for number in range(500)], pa.timestamp("us", tz="UTC"))
    windows = pa.table({"window_start": begin, "average": [number * 1.5 for number in range(500)]})
    append(tmp_path, windows, {"log": "cne"}, "query", 0)
    (path,) = tmp_path.glob("*.parquet")
    others, refused = taken_for_others(path, lambda: _verified(path), ArchiveUnreadable)
    assert others == 0
    assert refused > 30
    assert ".crc-" in path.name


@pytest.mark.parametrize("kind", ["events", "table"])
def test_an_import_takes_no_flipped_bit(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "orders.parquet"
    table = rows(range(1, 201)).select(["type", "data", "tags", "id"])
    if kind == "table":
        table = pa.table({"order": table["id"], "total": [number * 1.5 for number in range(200)]})
    pq.write_table(table, path, write_page_checksum=True)

    def imported() -> list[list[dict[str, object]]]:
        mapping = TableMapping("shop") if kind == "events" else TableMapping("shop", type_column="order")
        pieces = pieces_of(look_at(path, None, mapping))
        return [batch.to_pylist() for piece in pieces for batch in read_piece(piece, LogSettings(), [])]

    others, refused = taken_for_others(path, imported, InvalidInput)
    assert others == 0
    assert refused > 30


def test_rows_in_quarantine_have_checksums(tmp_path: Path) -> None:
    kept = [BadRow("orders.csv", number, number, f"x,{number}", "no number") for number in range(200)]
    write_bad_rows(str(tmp_path), "import", 0, 0, kept)
    (path,) = tmp_path.glob("*.parquet")
    others, refused = taken_for_others(path, lambda: _verified(path), ArchiveUnreadable)
    assert others == 0
    assert refused > 30


def _verified(path: Path) -> pa.Table:
    try:
        return pq.read_table(path, page_checksum_verification=True)
    except OSError as error:
        raise ArchiveUnreadable(str(path), f"damaged: {error}") from error
