"""Pages: no number is written while others use the machine, and each command replaces what it wrote itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.load import Load, TooBusy, allowed
from benchmarks.measure import Case, Outcome, Sample
from benchmarks.report import Answer, write_markdown
from benchmarks.served import __main__ as served
from click.testing import CliRunner

from benchmarks import load

ANSWER = Answer("one", "One", "Asked?", [Outcome(Case("work", "1/s", {}), {"headwater": [Sample(1), Sample(5)]})])
ABSENT = Answer("two", "Two", "Asked?", [Outcome(Case("apart", "1/s", {}, absent="not measured: 2 cores"))])


def test_no_run_for_a_page_begins_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load, "others", lambda _: 1.5)
    monkeypatch.setattr(served, "UMADB", served.SAME)  # it need not be installed
    monkeypatch.setattr(served, "write_markdown", lambda *_: pytest.fail("a page was written"))
    monkeypatch.setattr(served.machine, "VOLATILE", frozenset())
    found = CliRunner().invoke(served.main, ["--write", "--directory", str(tmp_path)])
    assert found.exit_code == 1
    expected = f"no page is written: expected at most {allowed():.2f} cores used by others, got 1.50 before"
    assert expected in found.output
    assert not list(tmp_path.iterdir())


def test_a_page_has_all_rows(tmp_path: Path) -> None:
    found = CliRunner().invoke(served.main, ["command-8", "--write", "--directory", str(tmp_path)])
    assert found.exit_code == 2
    assert "expected no row with --write, as a page has them all, got command-8" in found.output


def test_a_load_that_begins_during_the_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "others", lambda _: 0.0)
    measured = Load(is_for_page=True)
    measured.check()
    monkeypatch.setattr(load, "others", lambda _: allowed() + 1)
    measured.end()
    with pytest.raises(TooBusy, match=rf"got 0\.00 before, {allowed() + 1:.2f} after"):
        measured.check()
    Load(is_for_page=False)  # without a page, anything may run


def test_the_bound_is_a_tenth_of_the_cores() -> None:
    assert allowed() == pytest.approx((os.cpu_count() or 1) / 10)


def test_a_command_replaces_what_it_wrote_itself(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Prose\n")
    write_markdown(page, "a", {"commit": "old"}, {}, [ANSWER])
    write_markdown(page, "b", {"commit": "other"}, {}, [ABSENT])
    write_markdown(page, "a", {"commit": "new"}, {"load by others": "none"}, [ANSWER])
    text = page.read_text()
    assert text.startswith("# Prose\n<!-- results: written by `a` -->\n\ncommit: new; load by others: none.\n")
    assert "commit: old" not in text
    assert text.index("`a`") < text.index("`b`") < text.index("commit: other")
    assert "| work, 1/s | headwater | 3 | 2\N{EN DASH}4 |" in text
    assert "| apart, 1/s | not measured: 2 cores |" in text
