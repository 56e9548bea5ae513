import json

import pytest
from tests.every import every

from headwater.client.protocol.problems import GatewayFailed, UnexpectedAnswer, error_of
from headwater.core import ConditionFailure, Forbidden, Unauthenticated, errors


def problem(code: str, status: int = 400, detail: str = "what happened", **members: object) -> errors.EventLogError:
    document = {"type": f"urn:headwater:problem:{code}", "title": code, "status": status, "detail": detail, **members}
    return error_of(status, json.dumps(document).encode(), None, "orders")


@every(
    ("error", "kind"),
    [
        (problem("unauthenticated", 401), Unauthenticated),
        (problem("forbidden", 403, right="read", log="orders"), Forbidden),
        (problem("log_not_found", 404, log="orders"), errors.LogNotFound),
        (problem("consumer_not_found", 404, owner="a", component="b"), errors.ConsumerNotFound),
        (problem("log_exists", 409, log="orders"), errors.LogExists),
        (
            problem("consumer_fenced", 409, owner="a", component="b", given=1, current=2),
            errors.ConsumerFenced,
        ),
        (problem("would_drop", 409, log="orders", drops=3, first=1, last=3, history=3), errors.WouldDrop),
        (problem("condition_needs_trimmed_events", 409, after=1, known_from=5), errors.ConditionNeedsTrimmedEvents),
        (problem("position_trimmed", 410, position=1, first_retained=5), errors.PositionTrimmed),
        (
            problem("position_of_other_incarnation", 410, position=1, incarnation="x", first=5),
            errors.PositionOfOtherIncarnation,
        ),
        (problem("overloaded", 503, waiting_bytes=2, allowed_bytes=1), errors.Overloaded),
        (problem("stopping", 503), errors.Closed),
        (problem("storage_unavailable", 503), errors.StorageUnavailable),
        (problem("storage_corrupted", 500), errors.StorageCorrupted),
        (problem("disk_full", 507, free_bytes=1, needed_bytes=2), errors.DiskFull),
        (problem("sequence_exhausted", 507, last=9), errors.SequenceExhausted),
    ],
)
def test_each_code_is_an_error_of_the_core_in_the_servers_words(error: Exception, kind: type[Exception]) -> None:
    assert type(error) is kind
    assert str(error) == "what happened"


def test_a_failed_condition_carries_its_conflict() -> None:
    error = problem("append_condition_failed", 409, reason="newer_match", sequence_number=7, after=3)
    assert isinstance(error, errors.AppendConditionFailed)
    assert (error.reason, error.conflict, error.after) == (ConditionFailure.NEWER_MATCH, 7, 3)


def test_a_failed_condition_without_match_has_no_conflict() -> None:
    error = problem("append_condition_failed", 409, reason="no_match_found", after=3)
    assert isinstance(error, errors.AppendConditionFailed)
    assert error.conflict is None


def test_a_duplicate_id_carries_where_it_is_stored() -> None:
    error = problem("duplicate_event_id", 409, id="x", source="", sequence_number=7, index=2)
    assert isinstance(error, errors.DuplicateEventId)
    assert (error.id, error.sequence_number, error.index) == ("x", 7, 2)


def test_too_large_carries_its_numbers() -> None:
    error = problem("too_large", 413, path="$.events[3].data", given=2, allowed=1, unit="bytes")
    assert isinstance(error, errors.TooLarge)
    assert (error.given, error.allowed, error.unit, error.where) == (2, 1, "bytes", "events[3].data")


@pytest.mark.parametrize(
    ("members", "kind", "where"),
    [
        ({"path": "$.events[3].tags[0]"}, errors.InvalidEvent, "events[3].tags[0]"),
        ({"path": "$.query.items[0].tags[1]"}, errors.InvalidQuery, "query.items[0].tags[1]"),
        ({"path": "$.condition.failIfEventsMatch.items"}, errors.InvalidQuery, "condition.failIfEventsMatch.items"),
        ({"path": "$.condition.after"}, errors.InvalidPosition, "condition.after"),
        ({"path": "$.partition"}, errors.InvalidPosition, "partition"),
        ({"parameter": "after"}, errors.InvalidPosition, "after"),
        ({"path": "$"}, errors.InvalidInput, ""),
    ],
)
def test_invalid_input_is_of_the_kind_that_its_path_tells(
    members: dict[str, str], kind: type[Exception], where: str
) -> None:
    error = problem("invalid_request", detail=f"{where}: too long" if where else "too long", **members)
    assert type(error) is kind
    assert isinstance(error, errors.InvalidInput)
    assert (error.problem, error.where) == ("too long", where)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"type":"urn:headwater:problem:tea"}', b'{"type":"urn:headwater:problem:disk_full"}'],
)
def test_anything_else_is_an_unexpected_answer(body: bytes) -> None:
    assert isinstance(error_of(500, body, None, "orders"), UnexpectedAnswer)


OF_PROXIES = {
    "nginx": b"<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n<center><h1>503 "
    b"Service Temporarily Unavailable</h1></center>\r\n<hr><center>nginx/1.22.1</center>\r\n</body>\r\n</html>\r\n",
    "HAProxy": b"<html><body><h1>503 Service Unavailable</h1>\nNo server is available to handle this request.\n"
    b"</body></html>\n",
    "Envoy": b"upstream connect error or disconnect/reset before headers. reset reason: connection failure",
    "Caddy": b"",
    "AWS ALB": b"<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n<center>"
    b"<h1>503 Service Temporarily Unavailable</h1></center>\r\n</body>\r\n</html>\r\n",
    "AWS API Gateway": b'{"message": "Endpoint request timed out"}',
    "no type": b'{"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": "upstream is away"}',
    "another type": b'{"type": "https://gateway.example/unavailable", "title": "Upstream is away"}',
    "a code without our type": b'{"type": "stopping", "detail": "the pod is stopping"}',
    "our type in a text": b'"urn:headwater:problem:stopping"',
    "cut": b'{"type": "urn:headwater:problem:stopping", "detail": "the serv',
    "a list": b'[{"type": "urn:headwater:problem:stopping"}]',
}


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.parametrize("body", OF_PROXIES.values(), ids=OF_PROXIES)
def test_what_a_proxy_answers_leaves_open_what_its_server_did(status: int, body: bytes) -> None:
    error = error_of(status, body, None, "orders")
    assert isinstance(error, GatewayFailed)
    assert "\n" not in str(error)
    assert str(error).startswith(f"a proxy answered {status}: ")


@pytest.mark.parametrize("code", ["stopping", "unready", "of_a_later_version"])
def test_a_503_of_our_type_says_that_nothing_was_done(code: str) -> None:
    error = problem(code, 503)
    assert isinstance(error, errors.Closed)
    assert not isinstance(error, GatewayFailed)


def test_a_code_of_ours_counts_whatever_the_status() -> None:
    assert isinstance(problem("outcome_unknown", 504, log="orders"), errors.OutcomeUnknown)
