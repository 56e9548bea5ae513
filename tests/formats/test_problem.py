"""Problem documents (RFC 9457)."""

from __future__ import annotations

import json

from headwater.formats.problem import Problem


def test_document_has_the_standard_members_and_its_own():
    problem = Problem(409, "log_exists", "The log exists", "log 'a' exists", {"log": "a", "nothing": None})
    assert json.loads(problem.to_json()) == {
        "type": "urn:headwater:problem:log_exists", "title": "The log exists", "status": 409,
        "detail": "log 'a' exists", "log": "a",
    }  # fmt: skip


def test_problem_that_is_no_more_than_its_status_is_about_nothing_else():
    problem = Problem.of_status(503, "the server is starting", (b"retry-after", b"5"))
    assert problem.headers == ((b"retry-after", b"5"),)
    assert problem.to_json() == (
        b'{"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": "the server is starting"}'
    )
