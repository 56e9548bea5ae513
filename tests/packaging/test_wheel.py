"""The wheel is all that is needed: installed in an empty environment, it serves, far from the repository.

It needs a package index (or pip's cache) for the libraries; without one these tests are skipped, and say so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL_S_MAX = 280
COMMAND_S_MAX = 60
NO_INDEX = ("No matching distribution found for", "Failed to establish a new connection", "Temporary failure in name")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty directory that is no part of the repository."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def wheel(elsewhere: Path) -> Path:
    """The wheel, built as `pip wheel .` does."""
    pip("wheel", "--no-deps", "--wheel-dir", str(elsewhere / "dist"), str(ROOT))
    [built] = (elsewhere / "dist").glob("headwater-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(elsewhere: Path, wheel: Path) -> Path:
    """The programs of an environment that has the wheel, what it requires, and nothing else."""
    venv.create(elsewhere / "environment")
    programs = elsewhere / "environment" / "bin"
    its = ["--python", str(programs / "python")]  # this environment's pip, for the other one: it needs none of its own
    pip(*its, "install", "--no-compile", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    return programs


@pytest.fixture
def url(installed: Path, elsewhere: Path) -> Iterator[str]:
    """A server, with everything that it serves by default, on free ports."""
    ports = ["--http-port", "0", "--amqp-port", "0", "--flight-port", "0"]
    process = subprocess.Popen(
        [installed / "headwater", "serve", "--data", "data", "--log", "orders", *ports],
        cwd=elsewhere,
        env=bare(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout as said:
        lines = [said.readline().removeprefix("headwater: listening on ") for _ in range(3)]
        assert [line.partition("://")[0] for line in lines] == ["http", "amqp", "grpc"]
        yield lines[0].split()[0]
        process.terminate()
        assert process.wait(COMMAND_S_MAX) == 0


def test_wheel_holds_what_is_not_python_and_the_module_by_which_spark_finds_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    left_out = {name for name in package - set(names) if "__pycache__" not in name}
    assert not left_out
    assert "pyspark_headwater/__init__.py" in names
    assert not [name for name in names if name.startswith(("tests/", "demo/", "benchmarks/"))]


def test_installed_command_says_its_version(installed: Path, wheel: Path) -> None:
    assert wheel.name.split("-")[1] in run(installed / "headwater", "--version")


def test_installed_package_is_not_the_one_of_the_repository(installed: Path, elsewhere: Path) -> None:
    where = run(installed / "python", "-c", "import headwater.server.cli as cli; print(cli.__file__)", cwd=elsewhere)
    assert Path(where.strip()).is_relative_to(elsewhere)


def test_installed_server_keeps_what_the_installed_command_appends(installed: Path, url: str, elsewhere: Path) -> None:
    headwater = installed / "headwater"
    event = ["--type", "OrderPlaced", "--tag", "order:17", "--data", '{"total": 30}']
    run(headwater, "append", "orders", *event, "--url", url, cwd=elsewhere)
    read = run(headwater, "read", "orders", "--tag", "order:17", "--json", "--url", url, cwd=elsewhere)
    [envelope] = map(json.loads, read.splitlines())
    assert (envelope["sequence_number"], envelope["event"]["data"]) == (1, '{"total": 30}')


def bare() -> dict[str, str]:
    """This environment without what would lead Python to the repository, or configure a server."""
    ours = ("PYTHON", "HEADWATER_", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a command says that ends well."""
    done = subprocess.run(command, cwd=cwd, env=bare(), capture_output=True, text=True, timeout=COMMAND_S_MAX)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pip(*arguments: str) -> None:
    """Run pip; the test is skipped where there is nowhere to get packages from."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, cwd="/", env=bare(), capture_output=True, text=True, timeout=INSTALL_S_MAX)
    if done.returncode and any(told in done.stderr for told in NO_INDEX):
        pytest.skip(f"no package index can be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
