"""`python -m tests.interop.install`: build the clients that are not built yet, into `.interop/`, side by side.

One that is needed by night alone is built by its tests.

Where CI is set, a client that cannot be built is an error; and Debian's packages of what is missing are installed, if
that is possible. Elsewhere the reason is printed, and the tests of that client are skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

from .runtimes import RUNTIMES, Chromium, Runtime, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

SIDE_BY_SIDE = 4
"""Most of the time they wait for what they download."""
_MAVEN = Lock()
"""Two runs of Maven must not write one local repository."""
_APT = Lock()
"""Nor two of apt-get."""


def main() -> int:
    """See the module."""
    wanted = [kind() for kind in RUNTIMES if not kind.by_night]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        failures = sum(not is_there for is_there in threads.map(_is_there, wanted))
    return 1 if failures and is_ci() else 0


def _is_there(runtime: Runtime) -> bool:
    """Build a client if it is not there; whether it is."""
    began = time.monotonic()
    try:
        with _MAVEN if "mvn" in runtime.programs else nullcontext():
            was_built = _installed(runtime)
    except Unavailable as error:
        print(f"interop: {error}", file=sys.stderr)
        return False
    if was_built:
        print(f"interop: built the client {runtime.name} in {time.monotonic() - began:.0f} s")
    return True


def is_ci() -> bool:
    """Whether this is CI, where every client must be there."""
    return os.environ.get("CI", "") not in ("", "false", "0")


def bring(runtime: Runtime) -> None:
    """Build a client that tests need by night alone, once for all their processes; skip the test if it cannot be."""
    runtime.built.parent.mkdir(parents=True, exist_ok=True)
    with runtime.built.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            runtime.install()
        except Unavailable as error:
            unavailable(str(error))


def unavailable(reason: str) -> NoReturn:
    """Skip a test, saying why; in CI nothing may be missing."""
    import pytest

    if is_ci():
        pytest.fail(f"in CI everything must be there: {reason}")
    pytest.skip(reason)


def driven_chromium() -> Iterator[Browser]:
    """The browser for a fixture, or the test is skipped."""
    runtime = Chromium()
    if reason := runtime.missing():
        unavailable(reason)
    with runtime.driven() as browser:
        yield browser


def _installed(runtime: Runtime) -> bool:
    try:
        return runtime.install()
    except Unavailable:
        if not (is_ci() and _apt_installed(runtime.debian)):
            raise
    return runtime.install()


def _apt_installed(packages: tuple[str, ...]) -> bool:
    """Whether Debian's packages could be installed."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    with _APT:
        for command in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *packages]):
            if subprocess.run(["apt-get", *command], check=False, stdout=subprocess.DEVNULL).returncode:
                return False
    return True


if __name__ == "__main__":
    sys.exit(main())
