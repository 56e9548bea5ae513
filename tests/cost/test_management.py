"""Management over HTTP: JSON that nobody asked for, attributes and filters at their worst, and long queries."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.every import every

from .measuring import ObservedServer
from .shapes import ANY_JSON, Shape, json_list, repeated

SIZE_MAX = 64 * 1024
"""A longer body is refused unread."""
PATHS = (
    ("PUT", "/management/log/new"),
    ("PATCH", "/management/log/l"),
    ("POST", "/management/org.amqp.management/self/QUERY"),
)
JSON = "application/json"
ASKED_FOR: dict[str, tuple[str, str, Shape]] = {
    "attributes that are none": ("PATCH", "/management/log/l", repeated("{", '"a{}":1', "}")),
    "a long list": ("PUT", "/management/user/alice", json_list('{"grants":[', '"read:a{}"', "]}")),
    "names of a query": (
        "POST",
        "/management/org.amqp.management/self/QUERY",
        json_list('{"attributeNames":[', '"a{}"', "]}"),
    ),
}


@every("shape", ANY_JSON, ids=str)
@pytest.mark.parametrize("route", PATHS, ids=" ".join)
def test_json_that_nobody_asked_for(server: ObservedServer, route: tuple[str, str], shape: str) -> None:
    method, path = route
    server.check_growth(
        f"{method} {path}, {shape}", lambda size: server.exchange(method, path, ANY_JSON[shape](size), JSON), SIZE_MAX
    )


@every("name", ASKED_FOR, ids=str)
def test_too_much_of_what_is_asked_for(server: ObservedServer, name: str) -> None:
    method, path, shape = ASKED_FOR[name]
    server.check_growth(name, lambda size: server.exchange(method, path, shape(size), JSON), SIZE_MAX)


@pytest.mark.parametrize("unit", ["a=", "name=b,", "\\\\", "name=\\", "=="])
def test_filters(server: ObservedServer, unit: str) -> None:
    def ask(size: int) -> None:
        text = quote("name=" + unit * (size // len(unit)), safe="=,")
        server.exchange("GET", f"/management/log?attributes=name&filter={text}", b"", JSON)

    server.check_growth(f"filter of {unit!r}", ask, SIZE_MAX)


@pytest.mark.parametrize("unit", ["log,", ",", "nothing"])
def test_names_of_types(server: ObservedServer, unit: str) -> None:
    def ask(size: int) -> None:
        server.exchange("GET", f"/management?types={unit * (size // len(unit))}", b"", JSON)

    server.check_growth(f"types of {unit!r}", ask, SIZE_MAX)


def test_a_query_of_everything(server: ObservedServer) -> None:
    """Thousands of partitions, each of which is read."""
    for number in range(3):
        assert server.exchange("PUT", f"/logs/many-{number}", b'{"partitions":1000}', JSON) in (200, 201)
    statuses = set()

    def ask(size: int) -> None:
        path = f"/management/partition?attributes=name,number,log,identity&count={size}"
        statuses.add(server.exchange("GET", path, b"", JSON))

    server.check_growth("rows", ask, 2_000)
    assert statuses == {200}
