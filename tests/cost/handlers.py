"""What the work of every handler grows with, and what keeps it from holding the event loop: a line for each.

`test_handlers` compares the lines with what the server has (`doors`), so that a new handler needs one. A line that
names a test (`file::test`) is measured there; for any other the bound is small, or kept by what it names.

- *slices*: `core/loop/slices.py`; others have their turns every few ms.
- *turns*: steps of `core/loop/scheduler.py`, half a millisecond each.
- *thread*: the work is pure Python or I/O in a thread, where the interpreter changes hands every 5 ms.
- *one*: the work does not grow.
"""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """One handler, or several that are alike."""

    grows_with: str
    bound: str
    test: str = ""


_LONG_BODY = Line("bytes and events of the body", "slices above 64 KiB", "test_dcb.py::test_json_that_nobody_asked_for")
_READ = Line(
    "events of the answer", "turns; pages of 1,000 events or 1 MiB", "test_dcb.py::test_too_much_of_what_is_asked_for"
)
_COUNT = Line(
    "terms, and events that match", "turns, and a budget of time", "test_dcb.py::test_too_much_of_what_is_asked_for"
)
_SMALL_BODY = Line("bytes of the body", "64 KiB", "test_dcb.py::test_json_that_nobody_asked_for")
_MANAGED = Line("bytes of the body", "64 KiB", "test_management.py::test_json_that_nobody_asked_for")
_QUERY = Line("entities", "slices; 10,000 results", "test_crowds.py::test_lists_of_many")
_ONE = Line("nothing", "one")
_CONNECTION = Line("nothing", "one: the connection it was asked on")
_STATE = Line("nothing", "one entry of the state, in a thread")
_CLOUD_BODY = Line("bytes of the body", "1 MiB", "test_cne.py::test_json_that_nobody_asked_for")
_CLOUD_LIST = Line(
    "subscriptions, publishers", "slices", "test_cne_crowds.py::test_lists_and_deleting_of_all_of_an_owner"
)

ROUTES = {
    "GET /": _ONE,
    "GET /health/live": _ONE,
    "GET /health/ready": Line("troubles", "one line for each log that cannot be used"),
    "GET /metrics": Line("logs, consumers, routes", "thread", "test_crowds.py::test_lists_of_many"),
    "GET /home/frames": Line("bytes of the log", "one frame at a time"),
    "GET /openapi.yaml": _ONE,
    "GET /logs": Line("logs, and grants of the user", "slices", "test_crowds.py::test_lists_of_many"),
    "GET /logs/{log}": Line("segments", "thread"),
    "PUT /logs/{log}": _SMALL_BODY,
    "PATCH /logs/{log}": _SMALL_BODY,
    "DELETE /logs/{log}": Line("files", "thread"),
    "POST /logs/{log}/append": _LONG_BODY,
    "POST /logs/{log}/events": _LONG_BODY,
    "POST /logs/{log}/read": _READ,
    "POST /logs/{log}/count": _COUNT,
    "POST /logs/{log}/histogram": _COUNT,
    "POST /logs/{log}/event-histogram": _COUNT,
    "GET /logs/{log}/terms": _COUNT,
    "GET /logs/{log}/position": Line("the logarithm of the log", "one"),
    "GET /logs/{log}/segments": Line("the limit", "1,000"),
    "GET /logs/{log}/head": _ONE,
    "GET /logs/{log}/events/{number}": Line("bytes of the event", "in pieces, as a read"),
    "GET /logs/{log}/subscribe": Line("events", "turns; the next page after the last is taken"),
    "POST /logs/{log}/trim": Line("segments and consumers", "thread"),
    "GET /logs/{log}/consumers": Line("consumers", "slices, in pieces", "test_crowds.py::test_lists_of_many"),
    "PUT /logs/{log}/consumers/{owner}/{component}": _SMALL_BODY,
    "DELETE /logs/{log}/consumers/{owner}/{component}": _STATE,
    "POST /logs/{log}/consumers/{owner}/{component}/acknowledge": _SMALL_BODY,
    "POST /logs/{log}/consumers/{owner}/{component}/reset": _SMALL_BODY,
    "PUT /logs/{log}/groups/{group}/workers/{worker}": Line(
        "members of the group, with their logarithm", "1,024 partitions, 1,000 workers (amqp/streams/spread.py)"
    ),
    "DELETE /logs/{log}/groups/{group}/workers/{worker}": Line(
        "partitions of the worker, with members", "1,024 partitions (amqp/streams/spread.py)"
    ),
    "POST /logs/{log}/groups/{group}/workers/{worker}/acknowledge": _SMALL_BODY,
    "GET /dcb/{log}/read": _READ,
    "POST /dcb/{log}/append": _LONG_BODY,
    "GET /management": _QUERY,
    "GET /management/{type}": _QUERY,
    "GET /management/{type}/{name}": Line("attributes", "partitions of a group: 1,024"),
    "PUT /management/{type}/{name}": _MANAGED,
    "PATCH /management/{type}/{name}": _MANAGED,
    "DELETE /management/{type}/{name}": _STATE,
    "POST /management/{type}/{name}/{operation}": _MANAGED,
    "POST /console/session": Line(
        "bytes of the body", "16 KiB", "test_console.py::test_a_login_with_json_that_nobody_asked_for"
    ),
    "GET /console/session": Line("bytes of cookies", "the head", "test_console.py::test_cookies_that_are_none"),
    "DELETE /console/session": _ONE,
    "GET /console/history": Line("series asked for, and samples", "those of a request line"),
    "GET /console/stream": Line("logs and readers", "once a second; 2,000 positions are looked up, in a thread"),
    "GET /futoin/{log}": Line("bytes of the path", "the head"),
    "POST /futoin/{log}": Line(
        "bytes and values of the message", "slices", "test_futoin.py::test_parameters_that_nobody_asked_for"
    ),
    "WebSocket /futoin/{log}": Line(
        "bytes, fragments and values of messages", "slices", "test_futoin.py::test_as_long_a_message_as_there_may_be"
    ),
    "cne GET health": _ONE,
    "cne GET api_versions": _ONE,
    "cne GET openapi.json": _ONE,
    "cne GET schemas": _ONE,
    "cne GET schemas/{id}": _ONE,
    "cne POST dummy": Line("bytes of the body", "1 MiB, unread"),
    "cne POST dummy2": Line("bytes of the body", "1 MiB, unread"),
    "cne GET {ResourceAddress}/currentstate": Line(
        "states that match, and those that may", "slices; an index by segments; in pieces",
        "test_cne_crowds.py::test_current_states_of_many_nodes",
    ),
    "cne GET subscriptions": _CLOUD_LIST,
    "cne POST subscriptions": Line(
        "states it is greeted with; subscriptions", "slices; one look at each subscription",
        "test_cne_crowds.py::test_greeting_of_a_subscription_and_a_ping",
    ),
    "cne DELETE subscriptions": _CLOUD_LIST,
    "cne GET subscriptions/{id}": _ONE,
    "cne DELETE subscriptions/{id}": _ONE,
    "cne PUT subscriptions/status/{id}": Line(
        "states that match", "slices, and as the endpoint takes them",
        "test_cne_crowds.py::test_greeting_of_a_subscription_and_a_ping",
    ),
    "cne GET subscriptions/{id}/delivery": Line("dead letters", "100"),
    "cne POST subscriptions/{id}/resume": Line("dead letters", "100, in slices"),
    "cne GET publishers": _CLOUD_LIST,
    "cne POST publishers": _CLOUD_BODY,
    "cne DELETE publishers": _CLOUD_LIST,
    "cne GET publishers/{id}": _ONE,
    "cne DELETE publishers/{id}": _ONE,
    "cne POST create/event": Line(
        "bytes and events of the body", "slices between the events of a batch",
        "test_cne.py::test_too_much_of_what_is_asked_for",
    ),
    "cne POST log": _CLOUD_BODY,
}  # fmt: skip

OPERATIONS = {
    "management QUERY": _QUERY,
    "management READ": _ONE,
    **{f"management {name}": Line("types", "18") for name in
       ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS", "GET-MGMT-NODES", "GET-EVENTS")},
    "server READ": Line("protocols", "one"),
    "homeServer READ": _ONE,
    "log CREATE": _STATE,
    "log READ": Line("segments, consumers", "thread"),
    "log UPDATE": Line("segments, consumers", "thread"),
    "log DELETE": Line("files", "thread"),
    "partition READ": _ONE,
    "connection READ": Line("sessions", "256"),
    "connection DELETE": Line(
        "links of the connection", "65,536", "test_amqp.py::test_a_connection_with_many_links_goes"
    ),
    "session READ": Line("links", "256"),
    "session DELETE": Line("links", "256"),
    "link READ": _ONE,
    "link DELETE": _CONNECTION,
    "durableLink READ": _ONE,
    "durableLink DELETE": _STATE,
    "client READ": _ONE,
    "client DELETE": Line("connections of the client", "ended one by one"),
    "reader READ": _ONE,
    "reader DELETE": _CONNECTION,
    "refusal READ": _ONE,
    "consumer CREATE": _STATE,
    "consumer READ": _STATE,
    "consumer UPDATE": _STATE,
    "consumer DELETE": _STATE,
    "consumerGroup READ": Line("partitions", "1,024, in a thread"),
    "consumerGroup UPDATE": Line("partitions", "1,024"),
    "consumerGroup DELETE": Line("partitions", "1,024"),
    "stream READ": _ONE,
    "stream DELETE": _STATE,
    "user CREATE": Line("grants", "64 KiB", "test_management.py::test_too_much_of_what_is_asked_for"),
    "user READ": _STATE,
    "user UPDATE": Line("grants", "64 KiB", "test_management.py::test_too_much_of_what_is_asked_for"),
    "user DELETE": Line("connections of the user", "ended one by one"),
    "token CREATE": _STATE,
    "token READ": _STATE,
    "token DELETE": _STATE,
    "subscription READ": _ONE,
    "subscription DELETE": _STATE,
}  # fmt: skip

_MESSAGE = Line("bytes and values of the message", "slices", "test_futoin.py::test_parameters_that_nobody_asked_for")
FUNCTIONS = {
    "ping": _MESSAGE,
    "addEvent": _MESSAGE,
    "addEvents": _MESSAGE,
    "registerConsumer": _MESSAGE,
    "pollEvents": Line("events of the answer", "turns; the reply's limit"),
    "readyToReceive": Line("events", "turns; as they are acknowledged"),
}

_FRAME = Line("bytes and values of the frame", "the frame's limit", "test_amqp.py::test_each_field_of_a_performative")
_SASL = Line("bytes of the frame", "512 before the login")
FRAMES = {
    **dict.fromkeys(("Open", "Begin", "Flow", "End", "Close", "Detach"), _FRAME),
    "Attach": Line("filters; members of a group", "the filters' limits; see workers", "test_amqp.py::test_filters"),
    "Transfer": Line("bytes of the message", "slices", "test_amqp.py::test_each_section_of_a_message"),
    "Disposition": Line("deliveries of the range", "unsettled ones", "test_amqp.py::test_each_field_of_a_performative"),
    **dict.fromkeys(("SaslInit", "SaslResponse", "SaslMechanisms", "SaslChallenge", "SaslOutcome"), _SASL),
}

_OF_FLIGHT = Line("bytes of the request", "another process", "test_flight.py::test_whatever_is_asked")
CALLS = {
    **dict.fromkeys(("authenticate", "user", "authorize", "check_position", "sent", "damaged",
                    "connections_ended"), _ONE),
    "place": Line("a log that is not open", "thread"),
    "append": Line("bytes of the batch", "thread"),
    "act": Line("what the action does", "thread"),
    **{f"action {name}": _OF_FLIGHT for name in (
        "logs", "info", "head", "heads", "position_at", "count", "lend", "create_log", "trim", "consumers", "consumer",
        "register_consumer", "acknowledge", "unregister_consumer", "report_position", "writer", "commit", "discard",
        "forget_writer",
    )},
}  # fmt: skip

_WAITS = Line("nothing", "it waits for an answer, a client that goes, or the end")
JOBS = {
    "amqp/connections/transport.py spawn": Line("what a peer asked for", "as its frame"),
    "amqp/server.py start": Line("nodes, groups and connections", "a look at each, a few times a second"),
    "amqp/streams/consumer.py _go_on_at": Line("events", "turns"),
    "amqp/streams/group_links.py ask_later": Line("members of the group", "amqp/streams/spread.py"),
    "amqp/streams/info_link.py _send": _ONE,
    "amqp/streams/node.py _answer_stored": _ONE,
    "amqp/streams/node.py information": Line("segments", "thread"),
    "amqp/streams/node.py perform": Line("decisions of the groups", "1,024 partitions"),
    "amqp/streams/node.py tick": Line("positions that changed", "thread"),
    "amqp/streams/nodes.py _open": Line("a log that is not open", "thread"),
    "amqp/streams/nodes.py spawn": Line("what a peer asked for", "as its frame"),
    "amqp/streams/workers.py _renew": Line("partitions of the worker", "1,024"),
    "amqp/streams/workers.py ask_later": Line("members of the group", "amqp/streams/spread.py"),
    "cne/delivery/endpoint.py start": Line(
        "events, and endpoints that are woken at once", "64 wakes in a turn; one replay in a turn",
        "test_cne_crowds.py::test_routing_to_many_subscriptions",
    ),
    "cne/feed.py run": Line(
        "endpoints that an event concerns", "one look at each; routes are found in slices",
        "test_cne_crowds.py::test_routing_to_many_subscriptions",
    ),
    "cne/service.py start": Line("subscriptions", "slices"),
    "cne/supervision.py start": Line(
        "subscriptions", "slices", "test_cne_crowds.py::test_start_with_many_subscriptions"
    ),
    "console/stream.py _tell": Line("logs and readers", "once a second"),
    "core/loop/deadline.py _start": _ONE,
    "core/loop/fair_semaphore.py run": _ONE,
    "core/loop/gil_yield.py _go_on": _ONE,
    "core/loop/gil_yield.py start": _ONE,
    "core/loop/group_commit.py committed": Line("callers of one commit", "one task for all"),
    "core/loop/memory.py _charge": Line("stalled connections", "a number of each, once a second"),
    "core/loop/memory.py _end_stalled": Line("stalled connections", "a number of each, once a second"),
    "core/loop/refused_connections.py tell": Line("refusals", "ten lines in a second, then one for all"),
    "core/watch/threads.py task": Line("the job", "as its line"),
    "dcb/counts/work_budget.py __aenter__": _WAITS,
    "dcb/reads/pieces.py send_all": _WAITS,
    "dcb/reads/subscribe.py _run": _WAITS,
    "dcb/workers.py _unless_gone": _WAITS,
    "futoin/functions/push.py _push": Line("events", "turns"),
    "futoin/functions/push.py resume": Line("events", "turns"),
    "futoin/websocket.py _run": _WAITS,
    "futoin/websocket.py serve": Line("bytes and values of the message", "slices"),
    "http/outgoing/resolver.py _begin": Line("a name", "thread"),
    "management/server.py _while_there": _WAITS,
    "server/app.py _look_after": Line("free memory", "malloc_trim, in a thread"),
    "server/app.py _open": Line("logs that open at the start", "thread"),
    "server/app.py _opened": _WAITS,
    "server/bulk/calls.py _blocking": Line("what the call does", "thread"),
    "server/bulk/link.py run": Line("bytes of the call", "as its line"),
    "server/bulk/supervisor.py start": _ONE,
    "server/httpd/connection.py connection_made": _ONE,
    "server/httpd/connection.py _look_on_later": Line("requests that came together", "one in a turn"),
    "server/httpd/runner.py begin": Line("the request", "as its line"),
    "core/loop/linger.py __init__": _ONE,
    "core/loop/linger.py _look": Line("connections that end", "one read of each, thrown away"),
    "server/httpd/websocket.py _look_on_later": Line(
        "frames that came together", "some in a turn", "test_futoin.py::test_small_frames"
    ),
    "server/httpd/websocket.py begin": _WAITS,
    "server/httpd/tunnel.py close": _ONE,
    "server/front/forwarding/forwarder.py _forward_request": Line("bytes of the body", "one read in a turn"),
    "server/front/forwarding/forwarder.py _forward_websocket": _WAITS,
    "server/front/forwarding/forwarder.py _begin": Line("requests being forwarded", "a comparison of each"),
    "server/front/forwarding/forwarder.py _look_at_calls": Line("requests being forwarded", "a comparison of each"),
    "server/monitoring/loop_watchdog.py _go_on": _ONE,
    "server/monitoring/notifications.py start": Line("logs, consumers, readers", "a look at each, in a thread"),
    "server/process/farewells.py tell": Line("connections that were refused", "one write of each"),
    "server/process/event_loop.py _open_some": Line("connections that wait", "one in a turn"),
    "server/process/event_loop.py _wait": _ONE,
    "server/replicas/frame_push.py _push": Line("bytes of frames", "one frame at a time"),
    "server/users/guard.py _checked": Line("nothing", "a password, in a thread"),
    "server/users/guard.py run": Line("nothing", "a password, in a thread"),
    "server/users/oidc/keys.py _begin": Line("keys of the issuer", "the answer's limit"),
}  # fmt: skip
