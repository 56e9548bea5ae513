import os
from pathlib import Path

import pytest

from headwater.core.errors import InvalidInput
from headwater.formats.files.new_file import new_file


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    with new_file(tmp_path / "a") as file:
        file.write(b"x")
        assert not (tmp_path / "a").exists()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"x")]


def test_nothing_is_left_of_a_file_that_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "a") as file:
        file.write(b"%d" % (1 // 0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [None, False])
def test_what_came_meanwhile_stays(tmp_path: Path, overwrite: bool | None) -> None:
    with (
        pytest.raises(InvalidInput, match="the file already exists; give another name"),
        new_file(tmp_path / "a", overwrite=overwrite),
    ):
        (tmp_path / "a").write_text("mine")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_link_is_replaced_and_not_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("mine")
    (tmp_path / "soft").symlink_to("source")
    os.link(tmp_path / "source", tmp_path / "hard")
    for name in ("soft", "hard"):
        with new_file(tmp_path / name, overwrite=True) as file:
            file.write(b"x")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"source": "mine", "soft": "x", "hard": "x"}


@pytest.mark.parametrize(
    ("name", "message"), [(".", "expected a file, got a directory"), ("no/a", "there is no directory .*/no")]
)
def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message), new_file(tmp_path / name, overwrite=True):
        pass
