"""`python -m tests.again ARGUMENTS`: pytest with these; a few tests that failed beside others run once more, alone.

Servers, browsers and databases of a dozen tests share two cores here, so a bound of time can be met by one test alone
and not beside the others. Such a test is told by name, for somebody to mend it: it waits for a time and not for a
state, or what it tests does. What fails alone, too, fails. Those whose failure says that something was lost are not
asked again, and where many fail nothing is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
FAILED = 1
"""What pytest answers when tests failed, and nothing else went wrong."""
AGAIN_MAX = 3
JUDGES = ("tests/chaos/", "tests/soak/", "tests/power/", "tests/homes/test_simulator.py", "tests/matrix/")
"""Where a failure is never one of time."""

_told = partial(print, flush=True)


def main(
    arguments: Sequence[str],
    run: Callable[[Sequence[str]], int],
    failed: Callable[[], Sequence[str]],
    told: Callable[[str], object] = _told,
) -> int:
    """The exit code. `run` runs pytest, `failed` says which tests failed in the last run."""
    if (code := run(arguments)) != FAILED:
        return code
    names = sorted(failed())
    if not names or len(names) > AGAIN_MAX or any(name.startswith(JUDGES) for name in names):
        return code
    told(f"once more, alone: {' '.join(names)}")
    if (code := run(names)) == 0:
        told(f"passed alone, and failed beside others; to be mended: {' '.join(names)}")
    return code


def _run(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _failed() -> Sequence[str]:
    """What pytest remembers of its last run."""
    return list(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []


if __name__ == "__main__":
    LAST_FAILED.unlink(missing_ok=True)  # of another run, perhaps
    sys.exit(main(sys.argv[1:], _run, _failed))
