"""Checksums of whole Parquet files: no bit of one is read as another value, and no damage ends the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.formats.files import parquet
from headwater.formats.files.parquet import NewParquet, batches_of, open_parquet, table_of
from headwater.formats.files.parquet_checksums import ChecksumMismatch, add_checksums, check_whole, checksums_in

from ...night import IS_NIGHT

TABLE = pa.table(
    {
        "number": range(1000),
        "text": [f"t{number % 7}" for number in range(1000)],
        "tags": [[str(number), "x"] for number in range(1000)],
    }
)


def made(directory: Path, table: pa.Table = TABLE) -> Path:
    new = NewParquet(directory / "some.parquet", table.schema)
    with new as writer:
        writer.write_table(table, row_group_size=300)
    return new.path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("files"))


@pytest.fixture(autouse=True, scope="module", params=["large", "small"])
def is_small(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Large files are verified chunk by chunk; those of these tests are small."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "large":
            patch.setattr(parquet, "_WHOLE_BYTES_MAX", 0)
        yield request.param == "small"


def damaged(whole: bytes, kind: str, at: int, other: int) -> bytes:
    at %= len(whole)
    if kind == "flip":
        return whole[:at] + bytes([whole[at] ^ 1 << other % 8]) + whole[at + 1 :]
    if kind == "cut":
        return whole[:at]
    length = 1 + other % 512
    block = whole[at : at + length]
    if kind == "double":
        return whole[:at] + block + block + whole[at + length :]
    second = whole[at + length : at + 2 * length]
    return whole[:at] + second + block + whole[at + 2 * length :]


@pytest.mark.parametrize("kind", ["flip", "cut", "swap", "double"])
@settings(max_examples=2000 if IS_NIGHT else 20, deadline=None)
@given(at=st.integers(0, 1 << 20), other=st.integers(0, 1 << 20))
def test_a_damaged_file_is_refused_or_read_right(file: Path, kind: str, at: int, other: int) -> None:
    whole = file.read_bytes()
    wrong = damaged(whole, kind, at, other)
    try:
        file.write_bytes(wrong)
        try:
            with open_parquet(file) as opened:
                assert table_of(opened) == TABLE
        except ChecksumMismatch:
            pass
        if wrong != whole:
            with pytest.raises(ChecksumMismatch, match="the file"):
                check_whole(file)
    finally:
        file.write_bytes(whole)


def test_every_bit_of_the_tail_is_verified_before_the_library_sees_it(file: Path, is_small: bool) -> None:
    whole = file.read_bytes()
    tail = int.from_bytes(whole[-8:-4], "little") + 8
    try:
        for at in range(len(whole) - tail - 12, len(whole), 1 if IS_NIGHT else 41):
            file.write_bytes(damaged(whole, "flip", at, at))
            part = "the file" if is_small else "the footer"
            with pytest.raises(ChecksumMismatch, match=part), open_parquet(file):
                pass
    finally:
        file.write_bytes(whole)


def test_of_a_large_file_only_what_is_read_is_verified(file: Path, is_small: bool) -> None:
    """So some row groups of it cost no more than these."""
    whole = file.read_bytes()
    chunk = pq.read_metadata(file).row_group(0).column(1)
    try:
        file.write_bytes(damaged(whole, "flip", chunk.data_page_offset + 3, 0))
        if is_small:
            with pytest.raises(ChecksumMismatch, match="the file"), open_parquet(file):
                pass
            return
        with open_parquet(file) as opened:
            assert sum(batch.num_rows for batch in batches_of(opened, 100, range(1, 4))) == 700
            with pytest.raises(ChecksumMismatch, match="a column"):
                list(batches_of(opened, 100, columns=["text"]))
    finally:
        file.write_bytes(whole)


def test_other_readers_read_files_with_checksums(file: Path) -> None:
    assert pq.read_table(file, page_checksum_verification=True) == TABLE


def test_two_files_of_each_others_names_are_refused(tmp_path: Path, is_small: bool) -> None:
    one, other = made(tmp_path), made(tmp_path, TABLE.slice(1))
    one.rename(tmp_path / "one")
    other.rename(one)
    (tmp_path / "one").rename(other)
    for path in (one, other):
        with pytest.raises(ChecksumMismatch, match="the file" if is_small else "the footer"), open_parquet(path):
            pass


def test_a_file_without_rows_has_checksums(tmp_path: Path) -> None:
    path = made(tmp_path, TABLE.slice(0, 0))
    check_whole(path)
    with open_parquet(path) as opened:
        assert table_of(opened).num_rows == 0


def test_what_is_read_back_otherwise_gets_no_name(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    pq.write_table(TABLE, path)
    with pytest.raises(ChecksumMismatch, match="the file as read back"):
        add_checksums(path, written=1)
    assert path.exists()


def test_a_file_that_fails_is_not_left(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), NewParquet(tmp_path / "some.parquet", TABLE.schema):
        _ = 1 // 0
    assert list(tmp_path.iterdir()) == []


def test_names_of_others_have_no_checksums() -> None:
    assert checksums_in("/a/part-00000-0af1-c000.zstd.parquet") is None
    assert checksums_in("s3://b/x.crc-0000000a-ffffffff.parquet") == (10, 0xFFFFFFFF)


def test_an_old_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    pq.write_table(TABLE, path)
    check_whole(path)
    with open_parquet(path) as opened:
        assert table_of(opened) == TABLE
