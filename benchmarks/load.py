"""What other processes take of the machine while it is measured: printed, and above a bound no page is written."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import click

from .measure import cpu_seconds

SAMPLE_S = 2.0
ALLOWED = 0.1
"""Of all cores."""
KERNEL_THREADS = "2"
"""The parent of every thread of the kernel: they also write what the contenders write, so they are not others."""


class TooBusy(click.ClickException):
    """Others take too much of the machine for numbers on a page."""


class Load:
    """The load by others around a run, in cores. A run for a page does not begin on a busy machine: raises TooBusy."""

    def __init__(self, *, is_for_page: bool) -> None:
        self._found = {"before": others(SAMPLE_S)}
        if is_for_page:
            self.check()
        self._began = time.perf_counter(), _others_s()

    def end(self, *, is_all_ours: bool = False) -> None:
        """Measure again; the run itself counts if everything that it started is a descendant of this process."""
        if is_all_ours:
            began, used = self._began
            self._found["during"] = (_others_s() - used) / (time.perf_counter() - began)
        self._found["after"] = others(SAMPLE_S)

    def __str__(self) -> str:
        found = ", ".join(f"{max(cores, 0):.2f} {when}" for when, cores in self._found.items())
        return f"{found} (cores; at most {allowed():.2f} on a page)"

    def check(self) -> None:
        """Raises TooBusy unless each of them is within the bound."""
        if max(self._found.values()) > allowed():
            raise TooBusy(f"no page is written: expected at most {allowed():.2f} cores used by others, got {self}")


def allowed() -> float:
    """So many cores may others use while a page is measured."""
    return ALLOWED * (os.cpu_count() or 1)


def others(seconds: float) -> float:
    """How many cores others use, over so many seconds from now."""
    began, used = time.perf_counter(), _others_s()
    time.sleep(seconds)
    return (_others_s() - used) / (time.perf_counter() - began)


def _others_s() -> float:
    """Seconds that anything but this process, its descendants and the kernel's threads ever used; a hypervisor, too."""
    user, nice, system, _, _, _, _, steal = map(int, Path("/proc/stat").read_text().split()[1:9])  # proc(5)
    ticks = user + nice + system + steal - _kernel_ticks()
    return ticks / os.sysconf("SC_CLK_TCK") - cpu_seconds(os.getpid())


def _kernel_ticks() -> int:
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = path.read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:13])) if fields[1] == KERNEL_THREADS else 0
    return ticks
