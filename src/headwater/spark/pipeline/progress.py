"""Shows a running pipeline: events per second, lag, and the duration of a batch.

On a terminal one changing line; elsewhere at most a line per second; with `json` a JSON object per batch, for logs. It
goes to stderr: stdout is for a command's result.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    from rich.live import Live

RATE_WINDOW_S = 10.0
LINE_INTERVAL_S = 1.0
TICK_INTERVAL_S = 10.0
"""If lines are kept, one shows progress after this long without a finished batch; the first one at once."""
OFFSETS = ("endOffset", "latestOffset")
"""The fields of a source's progress for the end of a batch, and for the end of the data."""
BEHIND = "behind"
"""What a stream of logs adds to its latest offset, in addition to positions: see `lag`."""


class Progress(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    """`live` on a terminal, else `lines`."""
    LIVE = "live"
    LINES = "lines"
    JSON = "json"
    NONE = "none"


class BatchDone(NamedTuple):
    """The state of a pipeline after a batch."""

    pipeline: str
    batch: int
    """Its number in the checkpoint."""
    events: int
    """The events read in this batch."""
    batch_ms: int
    behind: int | None
    """The number of events left; None if the source does not report it. For sources other than ours, sequence numbers.
    """
    events_per_s: float
    """The recent rate of this run."""
    events_total: int
    """The total of this run."""
    batches_total: int
    percent: float | None = None
    """How much of the initial backlog is done; None if unknown, as when a pipeline follows."""
    remaining_s: float | None = None
    """The estimated time for the rest."""


class Status(NamedTuple):
    """The state of a pipeline between two batches."""

    pipeline: str
    percent: float | None
    """See BatchDone; includes the done part of the running batch."""
    remaining_s: float | None
    seconds: float
    """The time since the start of the run."""
    events_total: int


class Tally:
    """The totals of a run, batch by batch."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.events = 0
        self.batches = 0
        self.behind: int | None = None
        self.last_batch: int | None = None
        """The number of the last batch that was counted."""
        self._recent: deque[tuple[float, int]] = deque()
        self._total: int | None = None
        self._step = self._left = 0
        self._expected = 0.0
        self._share = 0.0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the start of the run."""
        return time.monotonic() - self._started

    def expect(self, total: int, step: int) -> None:
        """Set the amount of work, in any unit, and the maximum of one step."""
        self._total, self._step, self._left = total, step, total
        self._expected, self._share = time.monotonic(), 0.0

    def status(self, running: float = 0.0) -> Status:
        """The state, with that part (0 to 1) of an uncounted step done."""
        percent = remaining = None
        if self._total is not None:
            whole = max(self._total, 1)
            share = 1 - (self._left - running * min(self._step, self._left)) / whole
            self._share = share = min(max(share, self._share), 1.0)  # tasks of a step come in several waves
            percent = round(100 * share, 1)
            if share > 0:
                remaining = round((time.monotonic() - self._expected) * (1 - share) / share, 1)
        return Status(self.pipeline, percent, remaining, round(self.seconds, 1), self.events)

    def add(self, batch: int, events: int, batch_ms: int, behind: int | None, left: int | None = None) -> BatchDone:
        """Count a batch. Returns the state to show. `left` is the amount of work left, by default `behind`."""
        self.last_batch = batch
        self._left = next((known for known in (left, behind) if known is not None), self._left)
        self.events += events
        self.batches += 1
        self.behind = behind
        now = time.monotonic()
        self._recent.append((now, events))
        while self._recent[0][0] < now - RATE_WINDOW_S:
            self._recent.popleft()
        # The oldest batch of the window took its time before it was counted; the very first one, its own.
        lasted = max(now - self._recent[0][0] + batch_ms / 1000, 0.001)
        rate = sum(count for _, count in self._recent) / lasted
        status = self.status()
        return BatchDone(self.pipeline, batch, events, batch_ms, behind, rate, self.events, self.batches,
                         status.percent, status.remaining_s)  # fmt: skip


def behind(sources: list[Mapping[str, Any]]) -> int | None:
    """How many events the sources have left, from a batch's progress; None if no source reports it.

    For a source that does not count events, it is the difference of its numbers.
    """
    distances = []
    for source in sources:
        end, latest = (_parsed(source.get(name)) for name in OFFSETS)
        if isinstance(latest, Mapping) and BEHIND in latest:
            distances.append(int(latest[BEHIND]["events"]))
        elif latest is not None and end is not None:
            distances.append(max(0, _distance(end, latest)))
    return sum(distances) if distances else None


def _parsed(offset: object) -> Any:
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _distance(end: Any, latest: Any) -> int:
    if isinstance(latest, Mapping):
        return sum(_distance(end.get(key) if isinstance(end, Mapping) else None, latest[key]) for key in latest)
    if isinstance(latest, int) and not isinstance(latest, bool):
        return latest - (end if isinstance(end, int) else 0)
    return 0


class Display:
    """Shows a run. This one shows nothing."""

    def show(self, done: BatchDone) -> None:
        """A batch is done."""

    def tick(self, status: Status) -> None:
        """About a second has passed."""

    def say(self, text: str) -> None:
        """Show a line permanently."""

    def close(self) -> None:
        """The run ended."""


def display(kind: Progress, stream: TextIO | None = None) -> Display:
    """A display of that kind, on stderr unless another stream is given."""
    stream = sys.stderr if stream is None else stream
    if kind is Progress.AUTO:
        kind = Progress.LIVE if stream.isatty() else Progress.LINES
    kinds: dict[Progress, Callable[[TextIO], Display]]
    kinds = {Progress.LIVE: Changing, Progress.LINES: Lines, Progress.JSON: JsonLines}
    return kinds[kind](stream) if kind in kinds else Display()


class Changing(Display):
    """One changing line on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live: Live | None = None
        self._line = ""

    def show(self, done: BatchDone) -> None:
        self._line = _line(done)
        self._update(self._line + _far(done.percent, done.remaining_s))

    def tick(self, status: Status) -> None:
        self._update((self._line or f"{status.pipeline}:") + _far(status.percent, status.remaining_s, status.seconds))

    def _update(self, line: str) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=Console(file=self._stream, highlight=False), auto_refresh=False)
            self._live.start()
        self._live.update(Text(line), refresh=True)

    def say(self, text: str) -> None:
        if self._live is None:
            print(text, file=self._stream, flush=True)
        else:
            self._live.console.print(text, markup=False)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class Lines(Display):
    """Lines, but not for every batch."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0.0
        self._last: BatchDone | None = None

    def show(self, done: BatchDone) -> None:
        now = time.monotonic()
        self._last = done
        if now - self._shown >= LINE_INTERVAL_S:
            self._shown, self._last = now, None
            self.say(_line(done) + _far(done.percent, done.remaining_s))

    def tick(self, status: Status) -> None:
        now = time.monotonic()
        if now - self._shown >= TICK_INTERVAL_S:
            self._shown = now
            self.say(f"{status.pipeline}:{_far(status.percent, status.remaining_s, status.seconds)}")

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        if self._last is not None:
            self.say(_line(self._last) + _far(self._last.percent, self._last.remaining_s))
            self._last = None


class JsonLines(Display):
    """A JSON object per batch, and one if none has ended for long."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0.0

    def tick(self, status: Status) -> None:
        if time.monotonic() - self._shown >= TICK_INTERVAL_S:
            self._shown = time.monotonic()
            self._write(status._asdict())

    def show(self, done: BatchDone) -> None:
        self._shown = time.monotonic()
        self._write(done._asdict() | {"events_per_s": round(done.events_per_s, 1)})

    def say(self, text: str) -> None:
        self._write({"message": text})

    def _write(self, what: dict[str, object]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        print(json.dumps({"time": at} | what, ensure_ascii=False), file=self._stream, flush=True)


def _line(done: BatchDone) -> str:
    left = "" if done.behind is None else f"   behind {done.behind:,}"
    return (
        f"{done.pipeline}: batch {done.batch}   {done.events:,} events in {done.batch_ms:,} ms   "
        f"{done.events_per_s:,.0f} events/s{left}   total {done.events_total:,} in {done.batches_total:,} batches"
    )


def _far(percent: float | None, remaining_s: float | None, seconds: float | None = None) -> str:
    """The progress, as the end of a line: unknown values are left out."""
    parts = [] if percent is None else [f"{percent:.0f} %"]
    parts += [] if remaining_s is None or percent == 100 else [f"{_clock(remaining_s)} left"]
    parts += [] if seconds is None else [f"after {_clock(seconds)}"]
    return f"   {', '.join(parts)}" if parts else ""


def _clock(seconds: float) -> str:
    """0:07, 12:34, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
