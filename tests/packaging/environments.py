"""The wheel and the source archive, made as pip makes them, and environments that have a wheel and what it requires.

They need a package index (or pip's cache) for the libraries; without one a test is skipped, and says so.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
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
NO_INDEX = ("No matching distribution found for", "Failed to establish a new connection", "Temporary failure in name")


def built_wheel(directory: Path) -> Path:
    """The wheel: that which $WHEEL names (`make compiled`), else built as `pip wheel .` does."""
    if given := os.environ.get("WHEEL"):
        return Path(given)
    [built] = pip_wheel(ROOT, directory).glob("headwater-*.whl")
    return built


def pip_wheel(checkout: Path, directory: Path) -> Path:
    """The directory, with the wheel of that checkout in it."""
    pip("wheel", "--no-deps", "--wheel-dir", str(directory), str(checkout))
    return directory


def environment(directory: Path, requirement: str, constraints: Path = ROOT / "constraints.txt") -> Path:
    """The programs of a new environment that has what is required, and what that requires, and no more."""
    venv.create(directory)
    programs = directory / "bin"
    other = ["--python", str(programs / "python")]  # this environment's pip works on it: it needs none of its own
    pip(*other, "install", "--no-compile", "--constraint", str(constraints), requirement)
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


def pip(*arguments: str) -> None:
    """Run pip; the test is skipped where there is nowhere to get packages from."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, cwd="/", env=bare(), capture_output=True, text=True, timeout=INSTALL_S_MAX)
    if done.returncode and any(told in done.stderr for told in NO_INDEX):
        unavailable(f"no package index can be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
