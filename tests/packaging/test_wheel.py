"""The wheel is all that is needed: installed in an empty environment, it serves, far from the repository."""

from __future__ import annotations

import hashlib
import json
import re
import sysconfig
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from headwater import __version__
from headwater.speedups.sources import sources as c_files

from .environments import PURE, ROOT, built_wheel, environment, pip, run, serving

ARCHIVE_BYTES_MAX = 2_000_000

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def elsewhere(disk: Path) -> Path:
    """An empty directory that is no part of the repository."""
    return disk


@pytest.fixture(scope="module", params=["with speedups", "pure Python"])
def build(request: pytest.FixtureRequest) -> str:
    """What `headwater --version` says of the wheel."""
    return str(request.param)


@pytest.fixture(scope="module")
def wheel(elsewhere: Path, build: str) -> Path:
    """The wheel, as a C compiler makes it or without one."""
    return built_wheel(elsewhere / build / "dist", **(PURE if build == "pure Python" else {}))


@pytest.fixture(scope="module")
def installed(elsewhere: Path, build: str, wheel: Path) -> Path:
    """The programs of an environment that has the wheel, what it requires, and nothing else."""
    return environment(elsewhere / build / "environment", str(wheel))


def test_wheel_holds_what_is_not_python_and_the_module_by_which_spark_finds_it(wheel: Path, build: str) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    left_out = sources() - set(names)
    of_c = {f"headwater/speedups/{file.name}" for file in c_files()}
    assert left_out == of_c, "a wheel has them compiled, or has no use for them"
    native = [name for name in names if name.endswith(".so")]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert native == ([f"headwater/speedups/_native{suffix}"] if build == "with speedups" else [])
    assert wheel.name.endswith("-py3-none-any.whl") is (build == "pure Python")
    assert "pyspark_headwater/__init__.py" in names
    assert not [name for name in names if name.startswith(("tests/", "demo/", "benchmarks/"))]


def test_wheel_lists_the_works_of_others_in_it(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
    materials = json.loads(archive.read(name))
    product, [theirs] = materials["metadata"]["component"], materials["components"]
    assert (product["version"], product["purl"]) == (__version__, f"pkg:pypi/headwater@{__version__}")
    told = {file["name"]: file["hashes"][0]["content"] for file in theirs["components"]}
    files = [name for name in archive.namelist() if re.search(r"/futoin\.[^/]+-iface\.json$", name)]
    assert told == {name: hashlib.sha256(archive.read(name)).hexdigest() for name in files} != {}


def sources() -> set[str]:
    """The files of the packages, below `src`, without what builds leave there."""
    files = [path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file()]
    return {file.as_posix() for file in files if "__pycache__" not in file.parts and file.suffix != ".so"}


def test_version_is_the_same_everywhere_and_that_of_the_newest_changes(
    installed: Path, wheel: Path, build: str
) -> None:
    newest = re.search(r"^## (\S+) - (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    release, _, development = __version__.partition(".dev")
    assert newest is not None and newest[1] == release
    assert re.fullmatch("unreleased" if development else r"\d{4}-\d\d-\d\d", newest[2])
    assert wheel.name.split("-")[1] == __version__
    assert run(installed / "headwater", "--version").strip() == f"headwater, version {__version__} ({build})"


def test_installed_package_is_not_the_one_of_the_repository(installed: Path, elsewhere: Path) -> None:
    where = run(installed / "python", "-c", "import headwater.cli.main as cli; print(cli.__file__)", cwd=elsewhere)
    assert Path(where.strip()).is_relative_to(elsewhere)


def test_installed_server_keeps_what_the_installed_command_appends(installed: Path, elsewhere: Path) -> None:
    headwater = installed / "headwater"
    event = ["--type", "OrderPlaced", "--tag", "order:17", "--data", '{"total": 30}']
    with serving(installed, installed.parents[1]) as urls:
        assert list(urls) == ["http", "amqp", "grpc"]
        run(headwater, "append", "orders", *event, "--url", urls["http"], cwd=elsewhere)
        read = run(headwater, "read", "orders", "--tag", "order:17", "--json", "--url", urls["http"], cwd=elsewhere)
        with urllib.request.urlopen(f"{urls['http']}/console/") as answer:
            page = answer.read().decode()
        files = re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page)
        for path in files:
            with urllib.request.urlopen(urls["http"] + path) as answer:
                assert answer.status == 200 and answer.read()
    assert len(files) >= 3, "the console is in the wheel"
    [envelope] = map(json.loads, read.splitlines())
    assert (envelope["sequence_number"], envelope["event"]["data"]) == (1, '{"total": 30}')


def test_source_archive_has_what_builds_and_explains_it_and_no_more(tmp_path: Path) -> None:
    backend = environment(tmp_path / "backend", "hatchling")
    run(backend / "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path), cwd=ROOT)
    [archive] = tmp_path.glob("headwater-*.tar.gz")
    assert archive.name == f"headwater-{__version__}.tar.gz" and archive.stat().st_size < ARCHIVE_BYTES_MAX
    with tarfile.open(archive) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "constraints.txt", "README.md", "CHANGELOG.md"} <= names
    assert {"LICENSE", "THIRD-PARTY.md", "SECURITY.md"} <= names
    assert {"deploy/headwater.service", "docs/start.md", "examples/decide.py"} <= names
    assert {f"src/{name}" for name in sources()} - names == set()
    assert not [name for name in names if name.endswith(".so")]
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", ".interop"))]

    pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(archive))
    assert list(tmp_path.glob(f"headwater-{__version__}-*.whl"))
