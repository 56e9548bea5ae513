"""The load generator, as a process."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from ..measure import Sample, Stopwatch, WrongAnswer
from .cache import installed, run

SOURCES = Path(__file__).parent / "load"


@cache
def program() -> Path:
    """The program, built. Raises Unavailable where there is no Go."""
    recipe = "".join(path.read_text() for path in sorted(SOURCES.iterdir()))

    def build(directory: Path) -> None:
        run("go", "build", "-o", directory / "load", ".", cwd=SOURCES)

    return installed("load", recipe, build, ["go"]) / "load"


class Load:
    """One load on one server: ready when made; `go` starts its work, `wait` ends it. A context manager."""

    def __init__(self, **request: Any) -> None:
        self._process = subprocess.Popen(
            [program(), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said("ready")

    def go(self) -> None:
        """Start the work."""
        self._write()

    def wait(self) -> dict[str, float]:
        """Wait for the end of the work; what the load has measured."""
        return self._said("done")

    def _write(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _said(self, event: str) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = json.loads(line or "{}")
        if answer.get("event") != event:
            self._process.kill()
            assert self._process.stderr is not None
            raise WrongAnswer(f"the load failed: {answer.get('problem') or self._process.stderr.read()[-1000:]}")
        del answer["event"]
        return answer

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process.poll() is None and exc_info[0] is None:
            self._write()
        else:
            self._process.kill()
        self._process.communicate()


def measured(pid: int, messages: int, **request: Any) -> Sample:
    """Run a load to its end; the rate, and the server's CPU per message."""
    with Load(messages=messages, **request) as load, Stopwatch([pid]) as watch:
        load.go()
        answer = load.wait()
    watch.seconds = answer["seconds"]
    sample = watch.rate(messages)
    return Sample(sample.value, sample.cpu_us, answer.get("p50_ms"), answer.get("p99_ms"))
