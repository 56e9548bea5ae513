"""The lowest versions that pyproject.toml allows are enough: an environment with these serves every way in."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.server.monitoring.collector import Collector

from .environments import HEALTH, ROOT, TOKENS, WAYS_IN, built_wheel, environment, run, serving
from .test_extras import RECORDER

REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)")
"""Each begins so: its name, and the lowest version."""
EXTRAS = ("eventsourcing", "mysql", "oidc", "otel", "postgres")
"""Those that are cheap to install; Spark's would take minutes."""


def lowest() -> list[str]:
    """The lowest version of each library, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for extra in EXTRAS for each in project["optional-dependencies"][extra]]
    required = [*project["dependencies"], *extras]
    found = [REQUIREMENT.match(requirement) for requirement in required]
    assert all(found), f"a requirement without a lower bound: {required}"
    return [f"{match[1]}=={match[2]}" for match in found if match]


@pytest.mark.timeout(600)
def test_the_lowest_versions_that_are_allowed_serve_every_way_in(tmp_path: Path) -> None:
    constraints = tmp_path / "lowest.txt"
    constraints.write_text("\n".join(lowest()), encoding="utf-8")
    wheel = f"{built_wheel(tmp_path / 'dist')}[{','.join(EXTRAS)}]"
    programs = environment(tmp_path / "environment", wheel, constraints)
    with Collector() as collector, serving(programs, tmp_path, "--tracing-endpoint", collector.url) as urls:
        said = run(programs / "python", WAYS_IN, *urls.values(), cwd=tmp_path)
        assert said.split() == ["PostedOverHttp", "SentOverAmqp", *["PutOverFlight"] * 2, "ADDED"]
        assert "SentOverAmqp" in run(programs / "headwater", "read", "orders", "--url", urls["http"], cwd=tmp_path)
        collector.named("append orders")
    assert run(programs / "python", "-c", RECORDER, cwd=tmp_path) == "1\n"
    with serving(programs, tmp_path, *TOKENS) as urls:
        assert "live" in run(programs / "python", "-c", HEALTH, urls["http"], cwd=tmp_path)
    with serving(programs, tmp_path, "--storage", "memory", ways=2) as urls:  # Arrow Flight takes a disk
        said = run(programs / "python", WAYS_IN, *urls.values(), cwd=tmp_path)
        assert said.split() == ["PostedOverHttp", "SentOverAmqp", "ADDED"]
