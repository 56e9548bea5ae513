"""No test is skipped in silence: a reason is in this list, or something is missing here that CI has.

In CI a skip for another reason fails the run. Elsewhere the run ends with what was left out, and how to bring it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.interop.install import is_ci

REASONS: Final = {
    "SQLite has one writer at a time": "the test is about two transactions at once, which other databases have",
    "root may write anywhere": "the test is about a directory that may not be written; CI is root",
    "only root may give files away": "the test is about files of another user; CI is root",
    "there is no state.sqlite-wal when it is closed": "SQLite removes it; the test looks at each file that is there",
    "the file system of the tests writes and syncs in two calls": "the test is about the one call of ext4 and XFS",
    "no memory cgroup can be made": "the test is about what the kernel does there; CI is root",
    "no loop device can be mounted": "other tests hand out other bytes than are mapped; CI is root",
    "the extension is turned off": "the twins in Python are run, by HEADWATER_NO_EXTENSIONS=1",
    "HEADWATER_TEST_DATA names no directory with receipt.csv.gz and recruiting-red.jsonocel.gz": "they are not ours",
}
"""Reasons that are right on any machine, each with why."""


class Skips:
    """The plugin that counts skips by their reasons."""

    def __init__(self) -> None:
        self._others: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a skip."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._count(report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a module that is skipped whole."""
        if report.skipped:
            self._count(report.longrepr)

    def _count(self, told: object) -> None:
        assert isinstance(told, tuple)
        reason = str(told[2]).removeprefix("Skipped: ")
        if reason not in REASONS:
            self._others[reason] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail the run in CI."""
        if self._others and is_ci() and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left out."""
        if self._others:
            title = "skipped, and not for a reason in tests/skips.py" if is_ci() else "left out on this machine"
            terminalreporter.section(title, sep="-")
            for reason, count in self._others.most_common():
                terminalreporter.write_line(f"{count:6,}  {reason}")
