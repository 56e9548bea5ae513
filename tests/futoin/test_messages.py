"""Messages (FTN3 1.9): the rows of 'what a message may say', by their literal examples."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core import Event

GEN, POLL, PUSH = "futoin.evt.gen:1.1", "futoin.evt.poll:1.1", "futoin.evt.push:1.1"
ADD = f"{GEN}:addEvent"
EVENT = {"type": "ORDER_NEW", "data": {"id": 7, "sum": "10.50"}}


def test_add_event_answers_a_bare_string(peer: Any) -> None:
    assert peer.call(ADD, EVENT, sec="alice:secret1") == {"r": "1"}
    assert peer.call(ADD, EVENT, sec="alice:secret1") == {"r": "2"}


def test_register_consumer_answers_true(peer: Any) -> None:
    asked = {"component": "Billing"}
    assert peer.call(f"{POLL}:registerConsumer", asked, sec="alice:secret1") == {"r": True}


def test_poll_events_answers_the_events_as_they_were_added(peer: Any) -> None:
    peer.call(ADD, EVENT)
    peer.register("Billing")
    (event,) = peer.poll("Billing", want=["ORDER_NEW"])["r"]
    assert event.pop("ts")[10] == "T"
    assert event == {"id": "1", **EVENT}


def test_ping_is_an_import_of_the_interfaces_and_no_interface_of_its_own(peer: Any) -> None:
    for interface in (GEN, POLL, "futoin.evt.poll:1.0", "headwater.evt.gen:1.0"):
        assert peer.call(f"{interface}:ping", {"echo": 5}) == {"r": {"echo": 5}}
    assert peer.call("futoin.ping:1.0:ping", {"echo": 5})["e"] == "UnknownInterface"
    assert peer.call(f"{GEN}:ping", {"echo": "5"})["e"] == "InvalidRequest"


def test_rid_is_echoed_with_results_and_with_errors(peer: Any) -> None:
    assert peer.call(ADD, EVENT, rid="C17") == {"r": "1", "rid": "C17"}
    assert peer.call(ADD, {}, rid="C18")["rid"] == "C18"
    assert "rid" not in peer.call(ADD, EVENT)
    assert "rid" not in peer.call(ADD, EVENT, rid="x" * 100_000)


def test_unknown_missing_and_mistyped_parameters_are_invalid_requests(peer: Any) -> None:
    for parameters, said in (
        ({**EVENT, "colour": 1}, "Unknown parameter: futoin.evt.gen:1.1:addEvent('colour')"),
        ({"data": 1}, "Missing parameter: futoin.evt.gen:1.1:addEvent(type)"),
        ({"type": "ORDER_NEW"}, "Missing parameter: futoin.evt.gen:1.1:addEvent(data)"),
        ({**EVENT, "type": "order"}, 'Type mismatch for parameter: futoin.evt.gen:1.1:addEvent(type) = "order"'),
        ({**EVENT, "type": 7}, "Type mismatch for parameter: futoin.evt.gen:1.1:addEvent(type) = 7"),
        ({**EVENT, "type": "A" * 17}, 'Type mismatch for parameter: futoin.evt.gen:1.1:addEvent(type) = "' + "A" * 17),
        ({**EVENT, "type": "ORDER\n"}, "Type mismatch for parameter"),
        ({**EVENT, "type": None}, "Type mismatch for parameter"),
    ):
        reply = peer.call(ADD, parameters)
        assert reply["e"] == "InvalidRequest"
        assert reply["edesc"].startswith(said)
    assert peer.log.head() == 0


def test_data_is_required_even_when_it_is_null(peer: Any) -> None:
    assert peer.call(ADD, {"type": "ORDER_NEW", "data": None}) == {"r": "1"}
    assert peer.log.head() == 1


@pytest.mark.parametrize(
    "data", [None, True, 0, -1.5, "", "text", [], [1, [2]], {"a": {"b": None}}, 2**70, "\u00e9\U0001f600"]
)
def test_data_is_any_json(peer: Any, data: Any) -> None:
    peer.add("ANY", data=data)
    peer.register()
    assert peer.poll()["r"][0]["data"] == data


def test_last_id_is_a_string_or_null_or_absent(peer: Any) -> None:
    peer.add("A", "B")
    peer.register()
    for last_id in (1, 0, "0", "01", "x", "1234567890123456789", "", ["1"]):
        assert peer.poll(last_id=last_id)["e"] == "InvalidRequest"
    assert peer.polled(last_id=None) == [1, 2]
    assert peer.polled() == [1, 2]
    assert peer.polled(last_id="1") == [2]


def test_components_fit_their_expression(peer: Any) -> None:
    for component in ("", "a b", "x" * 17, "caf\u00e9", 7, None):
        assert peer.call(f"{POLL}:registerConsumer", {"component": component})["e"] == "InvalidRequest"


def test_another_major_or_a_higher_minor_version_is_not_supported(peer: Any) -> None:
    for version in ("2.0", "0.9", "1.2", "1.10"):
        assert peer.call(f"futoin.evt.gen:{version}:addEvent", EVENT)["e"] == "NotSupportedVersion"
    for interface in ("futoin.evt.gen:1.0", GEN):
        assert "r" in peer.call(f"{interface}:addEvent", EVENT)
    for interface in ("futoin.evt.poll:1.0", POLL):
        assert peer.call(f"{interface}:registerConsumer", {"component": "C"}) == {"r": True}


@pytest.mark.parametrize(
    "f", ["", "x", "a:b", "a:b:c:d", "futoin.evt.gen:1:addEvent", "futoin.evt.gen:x.y:addEvent", 7, None, {}]
)
def test_a_malformed_f_is_an_invalid_request(peer: Any, f: Any) -> None:
    assert peer.post({"f": f, "p": {}})["e"] == "InvalidRequest"


def test_an_unknown_function_of_a_known_interface_is_an_invalid_request(peer: Any) -> None:
    assert peer.call(f"{GEN}:removeEvent")["e"] == "InvalidRequest"
    assert peer.call("futoin.evt.fetch:1.0:go")["e"] == "UnknownInterface"


@pytest.mark.parametrize("p", [7, "x", [], [1]])
def test_parameters_are_a_map(peer: Any, p: Any) -> None:
    assert peer.post({"f": ADD, "p": p})["e"] == "InvalidRequest"


def test_a_live_consumer_does_not_register(peer: Any) -> None:
    reply = peer.call(f"{POLL}:registerConsumer", {"component": "LIVE"})
    assert reply == {"e": "LiveNotAllowed", "edesc": "Live consumer should not register"}


def test_an_unregistered_consumer_is_told_so(peer: Any) -> None:
    assert peer.poll("Nobody")["e"] == "NotRegistered"


def test_messages_of_default_size_have_64_kib(peer: Any) -> None:
    around = b'{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"BIG","data":"%b"}}'
    fitting = 65536 - len(around % b"")
    assert peer.post(around % (b"x" * fitting)) == {"r": "1"}
    reply = peer.post(around % (b"x" * (fitting + 1)))
    assert reply["e"] == "InvalidRequest"
    assert "at most 65536 are allowed" in reply["edesc"]


def test_a_log_that_is_not_there_is_an_invalid_request(peer: Any) -> None:
    reply = peer.http("POST", "/futoin/nolog", b'{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":1}}')
    assert reply.json["e"] == "InvalidRequest"
    reply = peer.http("POST", "/futoin/$bad", b'{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":1}}')
    assert reply.json["e"] == "InvalidRequest"


def test_pages_are_cut_at_64_kib_but_for_poll_1_1(peer: Any) -> None:
    peer.log.append([Event("BIG", b'"%b"' % (b"x" * 20_000)) for _ in range(10)])
    peer.register()
    of_1_0 = peer.call("futoin.evt.poll:1.0:pollEvents", {"component": "C"})["r"]
    assert [event["id"] for event in of_1_0] == ["1", "2", "3"]
    assert len(peer.poll()["r"]) == 10


def test_pages_have_1000_events_at_most(peer: Any) -> None:
    peer.log.append([Event("E", b"1")] * 1500)
    peer.register()
    assert peer.polled() == list(range(1, 1001))
    assert peer.polled(last_id="1000") == list(range(1001, 1501))


def test_an_event_that_fits_no_message_is_a_stub_that_says_so(peer: Any) -> None:
    peer.log.append([Event("BIG", b'"%b"' % (b"x" * 100_000)), Event("SMALL", b"1")])
    peer.register()
    first, second = peer.call("futoin.evt.poll:1.0:pollEvents", {"component": "C"})["r"]
    assert first["data"]["too_large"]["bytes"] == 100_002
    assert first["data"]["too_large"]["allowed"] < 65536
    assert (first["id"], first["type"], second["data"]) == ("1", "BIG", 1)
    assert len(peer.poll("LIVE")["r"][0]["data"]) == 100_000
