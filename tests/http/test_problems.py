"""Every error has an answer, and no caller's error is the server's."""

from __future__ import annotations

import re
from importlib.resources import files

import yaml

from headwater.core import errors as core
from headwater.core.access import IssuerUnavailable
from headwater.formats.problem import TYPE_PREFIX
from headwater.http import problems
from headwater.http.errors import HttpError, HttpVersionTooOld, NumberNotHereYet, Stopping, Unready
from tests.docs.troubleshooting import sent_problems

SERVERS_OWN = {
    core.EventLogError, core.StorageCorrupted, core.StorageUnavailable, core.Overloaded, core.Closed, core.DiskFull,
    IssuerUnavailable, core.NotPrimary, core.OutcomeUnknown,
    core.SequenceExhausted, HttpVersionTooOld, NumberNotHereYet, Stopping, Unready,
}  # fmt: skip


def kinds(kind: type[Exception]) -> set[type[Exception]]:
    return {kind}.union(*map(kinds, kind.__subclasses__()))


def test_every_error_of_the_core_is_in_the_table() -> None:
    for kind in kinds(core.EventLogError):
        if kind.__module__.startswith("headwater.core") and not issubclass(kind, core.InvalidInput):
            assert any(each in problems._TABLE for each in kind.__mro__), kind


def test_everything_that_http_can_have_is_in_the_table() -> None:
    assert kinds(HttpError) - problems._TABLE.keys() == {HttpError}


def test_only_what_the_server_lacks_is_a_server_error() -> None:
    assert {kind for kind, row in problems._TABLE.items() if row.status > 499} == SERVERS_OWN


def test_a_fault_of_ours_is_no_problem_of_the_table() -> None:
    assert problems.problem_of(KeyError("x")) is None


def test_what_passes_by_itself_says_when_to_come_again() -> None:
    overloaded = problems.problem_of(core.Overloaded(2, 1, 0.2))
    stopping = problems.problem_of(Stopping())
    assert overloaded is not None and overloaded.headers == ((b"retry-after", b"1"),)
    assert stopping is not None and stopping.headers == ((b"retry-after", b"2"), (b"connection", b"close"))


def test_the_openapi_document_names_every_problem_and_has_every_member() -> None:
    text = files("headwater.dcb").joinpath("openapi.yaml").read_text()
    sent = sent_problems()
    assert [code for code in sent if f"`{code}`" not in text] == []
    properties = yaml.safe_load(text)["components"]["schemas"]["Problem"]["properties"]
    members = frozenset().union(*(each.members for each in sent.values()))
    assert set(properties) == {"type", "title", "status", "detail"} | members
    pattern = re.compile(properties["type"]["pattern"])
    assert all(pattern.match(each) for each in ("about:blank", *(TYPE_PREFIX + code for code in sent)))
