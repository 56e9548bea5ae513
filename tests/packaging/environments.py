"""The wheel and the source archive, made as pip makes them, and environments that have a wheel and what it requires.

uv makes the environments: it takes seconds where pip takes minutes. They need a package index (or uv's cache) for the
libraries; without one a test is skipped, and says so.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.interop.install import unavailable

ROOT = Path(__file__).parents[2]
WAYS_IN = Path(__file__).parent / "every_way_in.py"
"""A program for the Python of an environment."""
PIPELINES = Path(__file__).parent / "every_pipeline.py"
"""Another one, where Spark is there."""
TOKENS = ("--oidc-issuer", "https://id.example.org", "--oidc-audience", "x")
"""Has a server that takes tokens, if it has what that takes."""
HEALTH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1] + '/health/live').read())"
"""A program that takes a URL: what anybody may ask a server with users."""
INSTALL_S_MAX = 500
COMMAND_S_MAX = 60
NO_INDEX = (
    "No matching distribution found for", "Failed to establish a new connection", "Temporary failure in name",
    "error sending request", "dns error",
)  # fmt: skip
"""What pip, then uv, say where no index can be reached."""
PURE = {"HATCH_BUILD_NO_HOOKS": "true"}
"""In the environment of a build: leaves out what the C compiler makes."""


def built_wheel(directory: Path, **variables: str) -> Path:
    """The wheel, built as `pip wheel .` does with these variables in its environment."""
    [built] = pip_wheel(ROOT, directory, **variables).glob("headwater-*.whl")
    return built


def pip_wheel(checkout: Path, directory: Path, **variables: str) -> Path:
    """The directory, with the wheel of that checkout in it."""
    pip("wheel", "--no-deps", "--wheel-dir", str(directory), str(checkout), **variables)
    return directory


def environment(directory: Path, requirement: str, constraints: Path = ROOT / "constraints.txt") -> Path:
    """The programs of a new environment that has what is required, and what that requires, and no more."""
    venv.create(directory)
    programs = directory / "bin"
    uv = Path(sys.executable).with_name("uv")
    where = ["--python", programs / "python", "--constraint", constraints]
    _install([uv, "pip", "install", "--quiet", *where, requirement], bare())
    return programs


@contextlib.contextmanager
def serving(programs: Path, directory: Path, *arguments: str, ways: int = 3) -> Iterator[dict[str, str]]:
    """A server there, with everything that it serves by default, on free ports: its URLs by scheme, so many."""
    ports = ["--http-port", "0", "--amqp-port", "0", "--flight-port", "0"]
    process = subprocess.Popen(
        [programs / "headwater", "serve", "--data", "data", "--log", "orders", *ports, *arguments],
        cwd=directory,
        env=bare(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout as said:
        try:
            urls = [said.readline().removeprefix("headwater: listening on ").partition(" ")[0] for _ in range(ways)]
            yield {url.partition("://")[0]: url.strip() for url in urls}
        finally:
            process.terminate()
            assert process.wait(COMMAND_S_MAX) == 0


def bare() -> dict[str, str]:
    """This environment without what would lead Python to the repository, or configure a server."""
    ours = ("PYTHON", "HEADWATER_", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def run(*command: str | Path, cwd: Path | None = None, seconds_max: int = COMMAND_S_MAX) -> str:
    """What a command says that ends well."""
    done = subprocess.run(command, cwd=cwd, env=bare(), capture_output=True, text=True, timeout=seconds_max)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pip(*arguments: str, **variables: str) -> str:
    """Run pip with these variables in its environment, and return what it prints."""
    return _install([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], bare() | variables)


def _install(command: Sequence[str | Path], variables: Mapping[str, str]) -> str:
    """Run pip or uv; the test is skipped where no index can be reached."""
    done = subprocess.run(command, cwd="/", env=variables, capture_output=True, text=True, timeout=INSTALL_S_MAX)
    if done.returncode and any(each in done.stderr for each in NO_INDEX):
        unavailable(f"no package index can be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
