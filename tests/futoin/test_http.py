"""HTTP (FTN5 1.4): status, media types, paths, and the form below the endpoint."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

ADD = b'{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"ORDER_NEW","data":{"id":7}},"sec":"alice:secret1"}'


def test_a_reply_is_200_and_of_the_type_that_clients_expect(peer: Any) -> None:
    answer = peer.http("POST", "/futoin/orders", ADD, headers={"content-type": "application/futoin+json"})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/futoin+json")
    assert answer.body == b'{"r":"1"}'
    assert answer.headers["content-length"] == str(len(answer.body))


def test_errors_are_200_too(peer: Any) -> None:
    answer = peer.http("POST", "/futoin/orders", b'{"f":"futoin.evt.gen:1.1:addEvent","p":{}}')
    assert (answer.status, answer.headers["content-type"]) == (200, "application/futoin+json")
    assert answer.json["e"] == "InvalidRequest"


def test_a_trailing_slash_makes_no_difference(peer: Any) -> None:
    assert peer.http("POST", "/futoin/orders/", ADD).json == {"r": "1"}


@pytest.mark.parametrize("header", ["content-type", "accept"])
def test_the_registered_media_type_is_answered_only_where_it_was_sent(peer: Any, header: str) -> None:
    answer = peer.http("POST", "/futoin/orders", ADD, headers={header: "application/vnd.futoin+json"})
    assert answer.headers["content-type"] == "application/vnd.futoin+json"


def test_the_content_type_of_a_request_does_not_matter(peer: Any) -> None:
    for media_type in ("text/plain", "application/json", "application/futoin+cbor"):
        assert "r" in peer.http("POST", "/futoin/orders", ADD, headers={"content-type": media_type}).json


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_on_the_bare_endpoint_are_400_and_empty(peer: Any, method: str) -> None:
    answer = peer.http(method, "/futoin/orders")
    assert (answer.status, answer.body) == (400, b"")


def test_head_calls_no_function(peer: Any) -> None:
    path, given = "/futoin/orders/futoin.evt.gen/1.1/addEvent", b"type=ORDER&data=1"
    refused = peer.http("HEAD", path, query_string=given)
    assert (refused.status, refused.body, refused.headers["allow"]) == (400, b"", "GET")
    assert peer.http("GET", path, query_string=given).json == {"r": "1"}, "nothing was added before"
    definition = peer.http("HEAD", "/futoin/orders/futoin.evt.gen-1.1-iface.json")
    assert (definition.status, definition.body) == (200, b"")


@pytest.mark.parametrize("body", [b"", b"nothing", b"[]", b"\x00\xff", b'"x"', b"MPC", b"\xef\xbb\xbf{}"])
def test_what_is_no_message_is_told_so(peer: Any, body: bytes) -> None:
    assert peer.http("POST", "/futoin/orders", body).json == {"e": "InvalidRequest", "edesc": "Missing req.f"}


@pytest.mark.parametrize("body", [b"{", b'{"f":"\xff"}', b'{"f":1,}', b'{"p":' + b"[" * 100_000, b'{"a":"\\ud800"}'])
def test_malformed_json_is_an_invalid_request(peer: Any, body: bytes) -> None:
    assert peer.http("POST", "/futoin/orders", body).json["e"] == "InvalidRequest"


def test_a_message_over_8_mib_is_refused_unread(peer: Any) -> None:
    body = b'{"f":"headwater.evt.gen:1.0:addEvents","p":{"events":"' + b"x" * (9 * 2**20)
    answer = peer.http("POST", "/futoin/orders", body)
    assert answer.json["e"] == "InvalidRequest"
    assert answer.headers["connection"] == "close"
    answer = peer.http("POST", "/futoin/orders", b"{", headers={"content-length": "9000000"})
    assert "at most 8388608 bytes" in answer.json["edesc"]


def test_a_compressed_message_is_refused(peer: Any) -> None:
    answer = peer.http("POST", "/futoin/orders", ADD, headers={"content-encoding": "gzip"})
    assert answer.json["e"] == "InvalidRequest"


def test_pushing_needs_a_connection_that_works_both_ways(peer: Any) -> None:
    for function in ("readyToReceive", "registerConsumer"):
        reply = peer.call(f"futoin.evt.push:1.1:{function}", {"component": "C"})
        assert reply == {"e": "InvalidRequest", "edesc": "Bi-Direct Channel is required"}


class TestBelowTheEndpoint:
    def get(self, peer: Any, path: str, query: str = "", **more: Any) -> Any:
        return peer.http("GET", f"/futoin/orders/{path}", query_string=query.encode(), **more).json

    def test_ping_with_security_in_the_path(self, peer: Any) -> None:
        path = "futoin.evt.poll/1.1/ping/alice%3Asecret1"
        assert self.get(peer, path, "echo=7") == {"r": {"echo": 7}}
        assert self.get(peer, "futoin.evt.poll/1.1/ping/", "echo=7") == {"r": {"echo": 7}}

    def test_strings_stand_as_they_are_and_other_values_as_json(self, peer: Any) -> None:
        assert self.get(peer, "futoin.evt.gen/1.1/addEvent", "type=A&data=%7B%22a%22%3A%5B1%5D%7D") == {"r": "1"}
        assert self.get(peer, "futoin.evt.gen/1.1/addEvent", "type=B&data=%22text%22") == {"r": "2"}
        assert self.get(peer, "futoin.evt.poll/1.1/registerConsumer", "component=C") == {"r": True}
        page = self.get(peer, "futoin.evt.poll/1.1/pollEvents", "component=C&last_id=1&want=%5B%22B%22%5D")["r"]
        assert [(event["id"], event["data"]) for event in page] == [("2", "text")]
        assert len(self.get(peer, "futoin.evt.poll/1.1/pollEvents", "component=LIVE")["r"]) == 2

    @pytest.mark.parametrize(
        "query", ["type=A&data={", "type=A&data=1&data=2", "type=A&data=1&colour=2", "type=a&data=1", "%ff", "type"]
    )
    def test_what_does_not_fit_is_an_invalid_request(self, peer: Any, query: str) -> None:
        assert self.get(peer, "futoin.evt.gen/1.1/addEvent", query)["e"] == "InvalidRequest"
        assert peer.log.head() == 0

    def test_http_basic_says_who_asks(self, peer: Any) -> None:
        header = {"authorization": "Basic " + base64.b64encode(b"carol:secret").decode()}
        assert self.get(peer, "futoin.evt.poll/1.1/registerConsumer", "component=C", headers=header) == {"r": True}
        assert peer.log.consumer("carol", "C") is not None

    def test_a_path_that_is_no_function_is_an_invalid_request(self, peer: Any) -> None:
        assert self.get(peer, "futoin.evt.gen/1.1")["e"] == "InvalidRequest"
        assert self.get(peer, "a/b/c/d/e")["e"] == "InvalidRequest"
        assert self.get(peer, "a.b/1.0/c")["e"] == "UnknownInterface"

    @pytest.mark.parametrize("path", ["%ff/1.0/ping", "futoin.evt.gen/1.0/ping/%ed%a0%80", "futoin.evt.gen/%ff/ping"])
    def test_a_path_that_is_no_text_is_an_invalid_request(self, peer: Any, path: str) -> None:
        answer = self.get(peer, path)
        assert answer == {"e": "InvalidRequest", "edesc": "the path is not UTF-8"}

    def test_a_raw_upload_is_not_taken(self, peer: Any) -> None:
        assert peer.http("POST", "/futoin/orders/futoin.evt.gen/1.1/addEvent", b"x").status == 400


def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_fault(peer: Any) -> None:
    async def scenario() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            raise AssertionError("nobody is there")

        await peer.app(peer.scope("http", "/futoin/orders", method="POST"), receive, send)

    peer.run(scenario())


def test_interface_definitions_are_served_as_json_where_clients_look_for_them(peer: Any) -> None:
    for name in ("futoin.evt.gen-1.1", "futoin.evt.push-1.0", "futoin.evt.types-1.0", "headwater.evt.gen-1.0"):
        answer = peer.http("GET", f"/futoin/orders/{name}-iface.json")
        assert answer.headers["content-type"] == "application/json"
        definition = json.loads(answer.body)
        assert f"{definition['iface']}-{definition['version']}" == name
    assert peer.http("GET", "/futoin/orders/futoin.evt.gen-9.9-iface.json").json["e"] == "InvalidRequest"
