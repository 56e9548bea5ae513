"""Every call of every protocol, the right that it takes, and what a refusal looks like: the expectation of the matrix.

docs/reference/rights.md shows it to readers. `python -m tests.roles.table > docs/reference/rights.md` writes that
page; a test compares the two, and another finds every call of the product here.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

KNOWN, READ, APPEND, MANAGE, SERVER = "known", "read", "append", "manage", "manage:*"
"""What a role may have. Everybody with right credentials is `known`."""


class Need(NamedTuple):
    """What a call takes."""

    label: str
    any_of: tuple[frozenset[str], ...]
    """One of these sets must be had as a whole."""

    def is_met(self, has: Set[str]) -> bool:
        """Whether somebody with these rights may make the call."""
        return any(wanted <= has for wanted in self.any_of)


def _need(label: str, *any_of: str) -> Need:
    return Need(label, tuple(frozenset(each.split()) for each in any_of))


NOTHING = _need("no credentials", "")
ANY_USER = _need("any user", KNOWN)
TO_READ = _need("`read`", READ)
TO_APPEND = _need("`append`", APPEND)
TO_MANAGE = _need("`manage`", MANAGE)
READ_AND_MANAGE = _need("`read` and `manage`", f"{READ} {MANAGE}")
APPEND_AND_MANAGE = _need("`append` and `manage`", f"{APPEND} {MANAGE}")
READ_OR_MANAGE = _need("`read` or `manage`", READ, MANAGE)
MANAGE_SERVER = _need("`manage:*`", SERVER)


OWN_WRITER = "for your own writer names: `append`"
"""The one more right that it takes to end what another user has staged, which is what the matrix tries."""


class Row(NamedTuple):
    """One call."""

    call: str
    need: Need
    about: str = ""


class Protocol(NamedTuple):
    """The calls of one protocol, and its refusals."""

    name: str
    unauthenticated: str
    """What a call gets without credentials, or with wrong ones."""
    forbidden: str
    """What a call gets whose user lacks the right."""
    about: str
    rows: tuple[Row, ...]


_SHOWS_READABLE = "lists the logs that the user may read"

HTTP = Protocol(
    "HTTP: DCB, CloudEvents, health and metrics",
    "401 with `WWW-Authenticate`, a problem of type `unauthenticated`",
    "403, a problem of type `forbidden` that names the right and the log",
    "The right is checked before the body, and before the log is looked up.",
    (
        Row("GET /", NOTHING, ""),
        Row("GET /health/live", NOTHING),
        Row("GET /health/ready", NOTHING),
        Row(
            "GET /metrics",
            ANY_USER,
            "names all logs and consumers; with `http.metrics_need_right`: `metrics:*` or `manage:*`",
        ),
        Row("GET /openapi.yaml", NOTHING),
        Row("GET /logs", ANY_USER, _SHOWS_READABLE),
        Row("GET /logs/{log}", TO_READ),
        Row("PUT /logs/{log}", TO_MANAGE),
        Row("PATCH /logs/{log}", TO_MANAGE),
        Row("DELETE /logs/{log}", TO_MANAGE),
        Row("POST /logs/{log}/append", TO_APPEND, "also with a condition, whose outcome reveals events"),
        Row("POST /logs/{log}/events", TO_APPEND),
        Row("POST /logs/{log}/read", TO_READ),
        Row("POST /logs/{log}/count", TO_READ),
        Row("POST /logs/{log}/histogram", TO_READ),
        Row("POST /logs/{log}/event-histogram", TO_READ),
        Row("GET /logs/{log}/terms", TO_READ),
        Row("GET /logs/{log}/position", TO_READ),
        Row("GET /logs/{log}/segments", TO_READ),
        Row("GET /logs/{log}/events/{number}", TO_READ),
        Row("GET /logs/{log}/head", TO_READ),
        Row("GET /logs/{log}/subscribe", TO_READ),
        Row("POST /logs/{log}/trim", TO_MANAGE),
        Row("GET /logs/{log}/consumers", TO_READ),
        Row("PUT /logs/{log}/consumers/{owner}/{component}", TO_MANAGE),
        Row("DELETE /logs/{log}/consumers/{owner}/{component}", TO_MANAGE),
        Row("POST /logs/{log}/consumers/{owner}/{component}/acknowledge", TO_MANAGE),
        Row("POST /logs/{log}/consumers/{owner}/{component}/reset", TO_MANAGE),
        Row("PUT /logs/{log}/groups/{group}/workers/{worker}", TO_READ),
        Row("DELETE /logs/{log}/groups/{group}/workers/{worker}", TO_READ),
        Row("POST /logs/{log}/groups/{group}/workers/{worker}/acknowledge", TO_READ),
        Row("GET /dcb/{log}/read", TO_READ),
        Row("POST /dcb/{log}/append", TO_APPEND),
    ),
)

FUTOIN = Protocol(
    "FutoIn, over HTTP and WebSocket",
    '200 and `{"e": "SecurityError"}`; `UnknownInterface` for an unknown function',
    '200 and `{"e": "Unauthorized"}`',
    "Only the user who registered a consumer can poll it. Opening a WebSocket needs no credentials: each message has "
    "its own, or uses the credentials of the opening request.",
    (
        Row("GET of a definition (`...-iface.json`)", NOTHING),
        Row("futoin.evt.gen ping", ANY_USER),
        Row("futoin.evt.gen addEvent", TO_APPEND),
        Row("futoin.evt.poll ping", ANY_USER),
        Row("futoin.evt.poll registerConsumer", READ_AND_MANAGE, "if already registered: `read`"),
        Row("futoin.evt.poll pollEvents", TO_READ, "moves the user's own consumer"),
        Row("futoin.evt.push ping", ANY_USER),
        Row("futoin.evt.push registerConsumer", READ_AND_MANAGE, "if already registered: `read`"),
        Row("futoin.evt.push pollEvents", TO_READ, "moves the user's own consumer"),
        Row("futoin.evt.push readyToReceive", TO_READ, "moves the user's own consumer; WebSocket only"),
        Row("headwater.evt.gen ping", ANY_USER),
        Row("headwater.evt.gen addEvent", TO_APPEND),
        Row("headwater.evt.gen addEvents", TO_APPEND),
        Row("headwater.evt.poll ping", ANY_USER),
        Row("headwater.evt.poll registerConsumer", READ_AND_MANAGE, "if already registered: `read`"),
        Row("headwater.evt.poll pollEvents", TO_READ, "moves the user's own consumer"),
    ),
)

CNE = Protocol(
    "Cloud native events, v1 and v2",
    "401 with `WWW-Authenticate`, and the reason in `headwater-problem`",
    "403, and the reason in `headwater-problem`",
    "Rights apply to the log `cne.log`. With `cne.public_reads`, GET needs no credentials.",
    (
        Row("GET /health", NOTHING),
        Row("GET api_versions", NOTHING),
        Row("GET health", NOTHING),
        Row("GET {ResourceAddress}/currentstate", TO_READ),
        Row("GET subscriptions", TO_READ),
        Row("POST subscriptions", TO_READ),
        Row("DELETE subscriptions", TO_READ, "only the caller's own"),
        Row("GET subscriptions/{id}", TO_READ),
        Row("DELETE subscriptions/{id}", READ_AND_MANAGE, "the caller's own: `read`"),
        Row("PUT subscriptions/status/{id}", TO_READ),
        Row("GET subscriptions/{id}/delivery", TO_READ),
        Row("POST subscriptions/{id}/resume", READ_AND_MANAGE, "the caller's own: `read`"),
        Row("GET publishers", TO_READ),
        Row("POST publishers", TO_APPEND),
        Row("DELETE publishers", TO_APPEND, "only the caller's own"),
        Row("GET publishers/{id}", TO_READ),
        Row("DELETE publishers/{id}", APPEND_AND_MANAGE, "the caller's own: `append`"),
        Row("POST create/event", TO_APPEND),
        Row("POST log", TO_APPEND),
        Row("POST dummy", NOTHING, "accepts anything, stores nothing"),
        Row("POST dummy2", NOTHING, "accepts anything, stores nothing"),
        Row("GET openapi.json", NOTHING),
        Row("GET schemas", NOTHING),
        Row("GET schemas/{id}", NOTHING),
    ),
)

_NODE = "org.amqp.management"
_TYPE = "io.headwater."
_SHOWS_VISIBLE = "lists the entities that the user may READ"

AMQP = Protocol(
    "AMQP 1.0",
    "SASL outcome 1 (auth), or the connection is closed before its open",
    "the link is detached with `amqp:unauthorized-access`; a message to the anonymous relay is rejected with it; "
    "`$management` answers 403",
    "`$management` and `$events` check the user's present rights. Entity types are shown without `io.headwater.`.",
    (
        Row("login (SASL)", ANY_USER),
        Row("attach a producer", TO_APPEND),
        Row("attach a producer to the anonymous relay", ANY_USER, "each message needs `append` on its log"),
        Row("send to the anonymous relay", TO_APPEND),
        Row("attach a consumer", TO_READ),
        Row("attach a consumer of a group", TO_READ, "moves the group's position"),
        Row("attach a durable subscription", TO_READ),
        Row("attach a receiver to $info", TO_READ),
        Row(
            "attach a receiver to $events",
            ANY_USER,
            "for logs that the user may read; everything else needs `manage:*`",
        ),
        Row("attach a pair to $management", ANY_USER),
        Row("attach a receiver to a reply node", ANY_USER),
        Row("attach a sender to a temporary queue", ANY_USER),
        Row(f"READ {_NODE}", ANY_USER),
        Row(f"QUERY {_NODE}", ANY_USER, _SHOWS_VISIBLE),
        Row(f"GET-TYPES {_NODE}", ANY_USER),
        Row(f"GET-ATTRIBUTES {_NODE}", ANY_USER),
        Row(f"GET-OPERATIONS {_NODE}", ANY_USER),
        Row(f"GET-ANNOTATIONS {_NODE}", ANY_USER),
        Row(f"GET-MGMT-NODES {_NODE}", ANY_USER),
        Row(f"GET-EVENTS {_NODE}", ANY_USER),
        Row(f"READ {_TYPE}server", MANAGE_SERVER),
        Row(f"READ {_TYPE}homeServer", MANAGE_SERVER),
        Row(f"CREATE {_TYPE}log", TO_MANAGE),
        Row(f"READ {_TYPE}log", READ_OR_MANAGE),
        Row(f"UPDATE {_TYPE}log", TO_MANAGE),
        Row(f"DELETE {_TYPE}log", TO_MANAGE),
        Row(f"READ {_TYPE}partition", READ_OR_MANAGE),
        Row(f"READ {_TYPE}connection", MANAGE_SERVER),
        Row(f"DELETE {_TYPE}connection", MANAGE_SERVER),
        Row(f"READ {_TYPE}session", MANAGE_SERVER),
        Row(f"DELETE {_TYPE}session", MANAGE_SERVER),
        Row(f"READ {_TYPE}link", MANAGE_SERVER, "the caller's own: any user"),
        Row(f"DELETE {_TYPE}link", MANAGE_SERVER),
        Row(f"READ {_TYPE}durableLink", MANAGE_SERVER),
        Row(f"DELETE {_TYPE}durableLink", MANAGE_SERVER),
        Row(f"READ {_TYPE}client", MANAGE_SERVER, "the caller's own: any user"),
        Row(f"DELETE {_TYPE}client", MANAGE_SERVER),
        Row(f"READ {_TYPE}reader", MANAGE_SERVER, "the caller's own: any user"),
        Row(f"DELETE {_TYPE}reader", MANAGE_SERVER),
        Row(f"READ {_TYPE}refusal", MANAGE_SERVER),
        Row(f"CREATE {_TYPE}consumer", TO_MANAGE),
        Row(f"READ {_TYPE}consumer", READ_OR_MANAGE),
        Row(f"UPDATE {_TYPE}consumer", TO_MANAGE),
        Row(f"DELETE {_TYPE}consumer", TO_MANAGE),
        Row(f"READ {_TYPE}consumerGroup", READ_OR_MANAGE),
        Row(f"UPDATE {_TYPE}consumerGroup", TO_MANAGE),
        Row(f"DELETE {_TYPE}consumerGroup", TO_MANAGE),
        Row(f"READ {_TYPE}stream", READ_OR_MANAGE),
        Row(f"DELETE {_TYPE}stream", TO_MANAGE),
        Row(f"CREATE {_TYPE}user", MANAGE_SERVER),
        Row(f"READ {_TYPE}user", MANAGE_SERVER),
        Row(f"UPDATE {_TYPE}user", MANAGE_SERVER),
        Row(f"DELETE {_TYPE}user", MANAGE_SERVER),
        Row(f"CREATE {_TYPE}token", MANAGE_SERVER),
        Row(f"READ {_TYPE}token", MANAGE_SERVER),
        Row(f"DELETE {_TYPE}token", MANAGE_SERVER),
        Row(f"READ {_TYPE}subscription", TO_READ),
        Row(f"DELETE {_TYPE}subscription", TO_MANAGE, "the caller's own: any user"),
    ),
)

FLIGHT = Protocol(
    "Arrow Flight",
    "`UNAUTHENTICATED` with `extra_info` whose `error` is `unauthenticated`",
    "`PERMISSION_DENIED` (pyarrow: `FlightUnauthorizedError`) with `extra_info` whose `error` is `forbidden`, the "
    "right and the log",
    "For a handshake and `get_schema`, only the text of the error is available, because pyarrow drops `extra_info`.",
    (
        Row("handshake", ANY_USER),
        Row("list_actions", NOTHING),
        Row("list_flights", ANY_USER, _SHOWS_READABLE),
        Row("get_flight_info of a path", TO_READ),
        Row("get_flight_info of a command", TO_READ),
        Row("get_schema", TO_READ),
        Row("do_get", TO_READ),
        Row("do_put append", TO_APPEND),
        Row("do_put stage", TO_APPEND, "for another user's writer name: `append` and `manage`"),
        Row("do_action logs", ANY_USER, _SHOWS_READABLE),
        Row("do_action info", TO_READ),
        Row("do_action head", TO_READ),
        Row("do_action heads", ANY_USER, _SHOWS_READABLE),
        Row("do_action lend", TO_READ),
        Row("do_action position_at", TO_READ),
        Row("do_action count", TO_READ),
        Row("do_action create_log", TO_MANAGE),
        Row("do_action trim", TO_MANAGE),
        Row("do_action consumers", TO_READ),
        Row("do_action consumer", TO_READ),
        Row("do_action register_consumer", TO_MANAGE),
        Row("do_action acknowledge", TO_MANAGE),
        Row("do_action unregister_consumer", TO_MANAGE),
        Row("do_action report_position", TO_READ),
        Row("do_action writer", TO_APPEND),
        Row("do_action commit", APPEND_AND_MANAGE, OWN_WRITER),
        Row("do_action discard", APPEND_AND_MANAGE, OWN_WRITER),
        Row("do_action forget_writer", APPEND_AND_MANAGE, OWN_WRITER),
    ),
)

_METHODS = {"CREATE": "PUT", "READ": "GET", "UPDATE": "PATCH", "DELETE": "DELETE"}


def _over_http(row: Row) -> Row:
    """The same operation of `$management` by method and path; it takes the same right."""
    operation, _, type = row.call.partition(" ")
    if method := _METHODS.get(operation):
        return Row(f"{method} /management/{type}/{{name}}", row.need, row.about)
    return Row(f"POST /management/{type}/self/{operation}", row.need, row.about)


OPERATION_OF = {_over_http(row).call: row.call for row in AMQP.rows if _TYPE in row.call or _NODE in row.call}
"""The operation of `$management` that each call over HTTP is."""

MANAGEMENT = Protocol(
    "Management over HTTP",
    "as in the first section",
    "as in the first section",
    "Every other call needs the right of its [operation](management.md#over-http), as over AMQP.",
    (
        Row("GET /management", ANY_USER, _SHOWS_VISIBLE),
        Row("GET /management/{type}", ANY_USER, _SHOWS_VISIBLE),
        *(_over_http(row) for row in AMQP.rows if _TYPE in row.call or _NODE in row.call),
    ),
)

CONSOLE = Protocol(
    "Console",
    "as in the first section",
    "as in the first section",
    "A [session](http.md#who-am-i) is a login of its user for all HTTP calls on this page except FutoIn's.",
    (
        Row("GET /console/", NOTHING, "the page and its files, without data"),
        Row("POST /console/session", ANY_USER, "credentials in the body"),
        Row("GET /console/session", ANY_USER),
        Row("DELETE /console/session", NOTHING, "ends the caller's session"),
        Row(
            "GET /console/history",
            ANY_USER,
            "series of a log need `read`, of the server and durable links `manage:*`; without `series`, lists yours",
        ),
        Row(
            "GET /console/stream",
            ANY_USER,
            "with `log`: `read`; events of logs that the user may read; everything else needs `manage:*`",
        ),
    ),
)

PROTOCOLS = (HTTP, FUTOIN, CNE, AMQP, MANAGEMENT, CONSOLE, FLIGHT)

_OPENING = """\
# Rights

This page lists the right that each call needs if there are [users](../guides/operations.md#users-and-rights), and the
answer to a call without that right. Rights apply to the log of the call and do not include each other; `manage:*`
allows managing all logs and the server. A refused call changes nothing. A login that cannot be checked because
[too many logins are waiting](../guides/operations.md#failed-logins) is not refused, but must be retried.

`manage:*` also allows reading and managing the log `$system`, to which only the server appends.

A [token of an issuer](../guides/operations.md#tokens-of-an-issuer) has the rights in its claim
`oidc.rights_claim` (grants, or roles defined by `oidc.roles`). Without the claim, it has the rights of any user. When
it expires, its connections end and calls with it are refused. If only the user's name is known (`$management`, Flight
sessions), and valid tokens with that name have different rights, only the rights common to all of them apply.
"""


def page() -> str:
    """docs/reference/rights.md"""
    return "\n".join([_OPENING, *map(_section, PROTOCOLS)])


def _section(protocol: Protocol) -> str:
    calls: dict[tuple[str, str], list[str]] = {}
    for row in protocol.rows:
        if row.call not in OPERATION_OF:  # whose section is that of AMQP
            calls.setdefault((row.need.label, row.about), []).append(row.call)
    lines = [
        f"## {protocol.name}",
        "",
        f"- Without valid credentials: {protocol.unauthenticated}.",
        f"- Without the right: {protocol.forbidden}.",
        "",
        protocol.about,
        "",
        "| right | calls | |",
        "| --- | --- | --- |",
        *(f"| {label} | {_calls(called)} | {about} |" for (label, about), called in calls.items()),
        "",
    ]
    return "\n".join(lines)


def _calls(called: list[str]) -> str:
    """Calls of one row of the page; the operations of a type of entity are together."""
    of_type: dict[str, list[str]] = {}
    for call in called:
        operation, _, type = call.partition(_TYPE)
        of_type.setdefault(type or call, []).append(operation.strip())
    return ", ".join(
        f"{'/'.join(operations)} `{type}`" if type not in called else _call(type)
        for type, operations in of_type.items()
    )


def _call(text: str) -> str:
    return text if "`" in text else f"`{text}`"


if __name__ == "__main__":
    print(page(), end="")
