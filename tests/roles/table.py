"""Every call of every protocol, the right that it takes, and what a refusal looks like: the expectation of the matrix.

docs/reference/rights.md shows it to readers. `python -m tests.roles.table > docs/reference/rights.md` makes that page
anew; a test compares the two, and another finds every call of the product here.
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


NOTHING = _need("none, no credentials either", "")
ANY_USER = _need("none, but credentials", KNOWN)
TO_READ = _need("`read`", READ)
TO_APPEND = _need("`append`", APPEND)
TO_MANAGE = _need("`manage`", MANAGE)
READ_AND_MANAGE = _need("`read` and `manage`", f"{READ} {MANAGE}")
APPEND_AND_MANAGE = _need("`append` and `manage`", f"{APPEND} {MANAGE}")
READ_OR_MANAGE = _need("`read` or `manage`", READ, MANAGE)
MANAGE_SERVER = _need("`manage:*`", SERVER)


OWN_WRITER = "under a writer's name of one's own: `append`"
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


_SHOWS_READABLE = "shows the logs that the user may read"

HTTP = Protocol(
    "HTTP: DCB, CloudEvents, health and metrics",
    "401 with `WWW-Authenticate`, a problem of type `unauthenticated`",
    "403, a problem of type `forbidden` that names the right and the log",
    "The right is looked at before the body is, and before it is known whether there is such a log.",
    (
        Row("GET /", NOTHING, "links, and nothing of the logs"),
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
        Row("POST /logs/{log}/append", TO_APPEND, "with a condition too, although its outcome tells what is there"),
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
    '200 and `{"e": "SecurityError"}`; `UnknownInterface` for a function that there is not',
    '200 and `{"e": "Unauthorized"}`',
    "A consumer belongs to the user who registered it, so that only that user polls it. Who opens a WebSocket needs no "
    "credentials: each message shows its own, or the connection's request has.",
    (
        Row("GET of a definition (`...-iface.json`)", NOTHING),
        Row("futoin.evt.gen ping", ANY_USER),
        Row("futoin.evt.gen addEvent", TO_APPEND),
        Row("futoin.evt.poll ping", ANY_USER),
        Row("futoin.evt.poll registerConsumer", READ_AND_MANAGE, "of one that is already registered: `read`"),
        Row("futoin.evt.poll pollEvents", TO_READ, "and moves the user's own consumer"),
        Row("futoin.evt.push ping", ANY_USER),
        Row("futoin.evt.push registerConsumer", READ_AND_MANAGE, "of one that is already registered: `read`"),
        Row("futoin.evt.push pollEvents", TO_READ, "and moves the user's own consumer"),
        Row("futoin.evt.push readyToReceive", TO_READ, "and moves the user's own consumer; WebSocket only"),
        Row("headwater.evt.gen ping", ANY_USER),
        Row("headwater.evt.gen addEvent", TO_APPEND),
        Row("headwater.evt.gen addEvents", TO_APPEND),
        Row("headwater.evt.poll ping", ANY_USER),
        Row("headwater.evt.poll registerConsumer", READ_AND_MANAGE, "of one that is already registered: `read`"),
        Row("headwater.evt.poll pollEvents", TO_READ, "and moves the user's own consumer"),
    ),
)

CNE = Protocol(
    "Cloud native events, v1 and v2",
    "401 with `WWW-Authenticate`, and the reason in `headwater-problem`",
    "403, and the reason in `headwater-problem`",
    "Rights are on the log of notifications (`cne.log`). With `cne.public_reads` the calls by GET need no credentials.",
    (
        Row("GET /health", NOTHING),
        Row("GET api_versions", NOTHING),
        Row("GET health", NOTHING),
        Row("GET {ResourceAddress}/currentstate", TO_READ),
        Row("GET subscriptions", TO_READ),
        Row("POST subscriptions", TO_READ),
        Row("DELETE subscriptions", TO_READ, "takes the caller's own only"),
        Row("GET subscriptions/{id}", TO_READ),
        Row("DELETE subscriptions/{id}", READ_AND_MANAGE, "of one's own: `read`"),
        Row("PUT subscriptions/status/{id}", TO_READ),
        Row("GET subscriptions/{id}/delivery", TO_READ),
        Row("POST subscriptions/{id}/resume", READ_AND_MANAGE, "of one's own: `read`"),
        Row("GET publishers", TO_READ),
        Row("POST publishers", TO_APPEND),
        Row("DELETE publishers", TO_APPEND, "takes the caller's own only"),
        Row("GET publishers/{id}", TO_READ),
        Row("DELETE publishers/{id}", APPEND_AND_MANAGE, "of one's own: `append`"),
        Row("POST create/event", TO_APPEND),
        Row("POST log", TO_APPEND),
        Row("POST dummy", NOTHING, "takes everything, keeps nothing"),
        Row("POST dummy2", NOTHING, "takes everything, keeps nothing"),
        Row("GET openapi.json", NOTHING),
        Row("GET schemas", NOTHING),
        Row("GET schemas/{id}", NOTHING),
    ),
)

_NODE = "org.amqp.management"
_TYPE = "io.headwater."
_SHOWS_VISIBLE = "shows the entities that the user may READ"

AMQP = Protocol(
    "AMQP 1.0",
    "SASL outcome 1 (auth), or the connection is closed before its open: nothing that follows is looked at",
    "the link is detached with `amqp:unauthorized-access`; a message to the anonymous relay is rejected with it; "
    "`$management` answers 403",
    "The user is that of the login; `$management` and `$events` look at the user's rights of the moment.",
    (
        Row("login (SASL)", ANY_USER),
        Row("attach a producer", TO_APPEND),
        Row("attach a producer to the anonymous relay", ANY_USER, "each message takes `append` on the log it names"),
        Row("send to the anonymous relay", TO_APPEND),
        Row("attach a consumer", TO_READ),
        Row("attach a consumer of a group", TO_READ, "and moves the group's position"),
        Row("attach a durable subscription", TO_READ),
        Row("attach a receiver to $info", TO_READ),
        Row("attach a receiver to $events", ANY_USER, "hears of logs that the user may read; of the rest: `manage:*`"),
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
        Row(f"READ {_TYPE}link", MANAGE_SERVER),
        Row(f"DELETE {_TYPE}link", MANAGE_SERVER),
        Row(f"READ {_TYPE}durableLink", MANAGE_SERVER),
        Row(f"DELETE {_TYPE}durableLink", MANAGE_SERVER),
        Row(f"READ {_TYPE}client", MANAGE_SERVER, "of one's own: none"),
        Row(f"DELETE {_TYPE}client", MANAGE_SERVER),
        Row(f"READ {_TYPE}reader", MANAGE_SERVER, "of one's own: none"),
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
        Row(f"DELETE {_TYPE}subscription", TO_MANAGE, "of one's own: none"),
    ),
)

FLIGHT = Protocol(
    "Arrow Flight",
    "`UNAUTHENTICATED` with `extra_info` whose `error` is `unauthenticated`",
    "`PERMISSION_DENIED` (pyarrow: `FlightUnauthorizedError`) with `extra_info` whose `error` is `forbidden`, the "
    "right and the log",
    "A handshake and `get_schema` can only say it in the text of the error: pyarrow hands on nothing else from there.",
    (
        Row("handshake", ANY_USER),
        Row("list_actions", NOTHING),
        Row("list_flights", ANY_USER, _SHOWS_READABLE),
        Row("get_flight_info of a path", TO_READ),
        Row("get_flight_info of a command", TO_READ),
        Row("get_schema", TO_READ),
        Row("do_get", TO_READ),
        Row("do_put append", TO_APPEND),
        Row("do_put stage", TO_APPEND, "under a writer's name of another's: `append` and `manage`"),
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
    "401 with `WWW-Authenticate`, a problem of type `unauthenticated`",
    "403, a problem of type `forbidden` that names the right and the log",
    "The operations of `$management`, with the rights that they take over AMQP. A type may be given by its last word.",
    (
        Row("GET /management", ANY_USER, "with `types`: shows the entities that the user may READ"),
        Row("GET /management/{type}", ANY_USER, _SHOWS_VISIBLE),
        *(_over_http(row) for row in AMQP.rows if _TYPE in row.call or _NODE in row.call),
    ),
)

CONSOLE = Protocol(
    "Console",
    "401 with `WWW-Authenticate`, a problem of type `unauthenticated`",
    "there is nothing that a user has no right to",
    "A session counts as the login of its user on every call over HTTP of this page, but for FutoIn's, together with "
    "its second secret in `Headwater-Console` and where the browser says that a page of this server sent the call.",
    (
        Row("GET /console/", NOTHING, "the page alone, and its files; what it shows is asked for by other calls"),
        Row("POST /console/session", ANY_USER, "the credentials are in the body"),
        Row("GET /console/session", ANY_USER),
        Row("DELETE /console/session", NOTHING, "ends the session that the call shows"),
        Row(
            "GET /console/history",
            ANY_USER,
            "of a log: `read`; of the server and of durable links: `manage:*`; without a series: names those",
        ),
        Row(
            "GET /console/stream",
            ANY_USER,
            "with `log`: `read`; hears of logs that the user may read; of the rest: `manage:*`",
        ),
    ),
)

PROTOCOLS = (HTTP, FUTOIN, CNE, AMQP, MANAGEMENT, CONSOLE, FLIGHT)

_OPENING = """\
# Rights

What each call takes where there are users ([operations](../guides/operations.md#users-and-rights)), and what a call
gets that is refused. Who logs in while
[too many logins wait](../guides/operations.md#failed-logins) is told to try again, which is no refusal.
Rights are on the log of the call and do not include each other; `manage:*` is the right to manage all logs, and with
them the server. A refused call changes nothing. A test makes every call of this page without credentials, with wrong
ones, and as users of each right alone, on a running server.

The log `$system` is the server's own: who has `manage:*` may read and manage it, and nobody may append to it.

A [token of an issuer](../guides/operations.md#tokens-of-an-issuer) is a login like others, and takes the same rights:
those that its claim (`oidc.rights_claim`) gives, as grants or by `oidc.roles`. Without the claim it has none, so that
it gets only what takes no right but credentials. They are the token's until it expires; then its connections end, and a
call that shows it is one with wrong credentials. Where a user is looked up by name alone (`$management`, sessions of
Arrow Flight), and several valid tokens of that name were shown with different rights, the rights that all of them give
count.
"""


def page() -> str:
    """docs/reference/rights.md"""
    return "\n".join([_OPENING, *map(_section, PROTOCOLS)])


def _section(protocol: Protocol) -> str:
    lines = [
        f"## {protocol.name}",
        "",
        f"- Without credentials, or with wrong ones: {protocol.unauthenticated}.",
        f"- Without the right: {protocol.forbidden}.",
        "",
        protocol.about,
        "",
        "| call | right | |",
        "| --- | --- | --- |",
        *(f"| {_call(row.call)} | {row.need.label} | {row.about} |" for row in protocol.rows),
        "",
    ]
    return "\n".join(lines)


def _call(text: str) -> str:
    return text if "`" in text else f"`{text}`"


if __name__ == "__main__":
    print(page(), end="")
