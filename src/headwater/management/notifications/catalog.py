"""Every notification type: when it is emitted, its attributes in order, and who may see it.

`tests.docs.events` generates docs/reference/events.md from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ...core.access import Right, User
from ...core.followers import FollowerKind
from ...core.watch.bus import Notification
from ...core.watch.notification_types import NotificationType
from .. import attributes


class Scope(StrEnum):
    """What a type is about, which decides who may see it."""

    LOG = "log"
    """The log named by the attribute `log`: visible with the right to read that log. Without this attribute (for
    example, because the address names no log) it is about the server.
    """
    PEER = "peer"
    """A peer of the server, by name and address: visible to its user, and with the right to manage the server."""
    SERVER = "server"
    """The server: visible with the right to manage it."""


@dataclass(frozen=True, slots=True)
class Attribute(attributes.Attribute):
    """An attribute of a notification type."""

    is_required: bool = True
    """Whether every notification of the type has it."""
    is_personal: bool = False
    """Whether it names a user. Without the right to manage the server, a user sees only its own name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The description of a notification type."""

    type: NotificationType
    when: str
    scope: Scope
    attributes: tuple[Attribute, ...]
    """All attributes in notification order, `eventType` first."""

    @property
    def names(self) -> tuple[str, ...]:
        """The attribute names, as GET-EVENTS answers them."""
        return tuple(attribute.name for attribute in self.attributes)


def may_see(user: User, notification: Notification) -> bool:
    """Whether a user may see it: events of a log require the right to read it; events of the server require the right
    to manage it.

    Users may always see what their own peers do.
    """
    attributes, scope = notification.attributes, CATALOG[notification.type].scope
    log = attributes.get("log")
    if scope is Scope.LOG and attributes.get("kind") in _OF_PEERS:
        scope = Scope.PEER  # it is about a link, like `link.*`
    if scope is Scope.LOG and isinstance(log, str):
        return user.may(Right.READ, log)
    return user.may(Right.MANAGE, "*") or (scope is Scope.PEER and is_own(user, attributes.get("user")))


def as_seen_by(user: User, notification: Notification) -> Notification | None:
    """The notification as the user may see it, without the names of other users; None if the user may not see it."""
    if not may_see(user, notification):
        return None
    personal = _PERSONAL.get(notification.type)
    if personal is None or user.may(Right.MANAGE, "*"):
        return notification
    attributes = notification.attributes
    hidden = {name for name in personal if name in attributes and not is_own(user, attributes[name])}
    if not hidden:
        return notification
    seen = {name: value for name, value in attributes.items() if name not in hidden}
    return notification._replace(attributes=seen)


def is_own(user: User, name: object) -> bool:
    """Whether an event or entity of the user `name` (None or empty: no user) belongs to this user."""
    return bool(name) and name == user.name


_OF_PEERS = frozenset({FollowerKind.RECEIVER.value, FollowerKind.DURABLE.value})
LOST = "lost"
"""The attribute that a queue adds: how many notifications the listener has lost before this one."""


_BY = Attribute.text(
    "user",
    "the requesting user, if the listener may see it",
    is_required=False,
    is_personal=True,
)


def _perhaps(attribute: Attribute) -> Attribute:
    return replace(attribute, is_required=False)


_text, _number = Attribute.text, Attribute.number


_FIRST = (
    _text("eventType", "the notification type"),
    Attribute.timestamp("time", "when it happened, by the server's clock"),
)
_LAST = (_perhaps(_number(LOST, "number of notifications that this slow listener lost just before this one")),)
_LOG = _text("log", "the log")
_COUNT = _number("count", "occurrences in that second")
_INTERVAL = _number("intervalMs", "the counting interval, about 1,000 ms")
_PEER = _text("peer", "the peer's address")
_CONTAINER = _text("container", "the peer's container id")
_USER = _perhaps(_text("user", "the authenticated user, if users are configured"))
_CONDITION = _perhaps(_text("condition", "the AMQP error condition, if there was an error"))
_DESCRIPTION = _perhaps(_text("description", "its description"))
_PORT = _perhaps(_number("port", "the peer's port"))
_MECHANISM = _text("mechanism", "the SASL mechanism; empty without SASL")
_TLS = _perhaps(_text("tls", "the TLS version, if TLS is used"))
_CONNECTION = (
    _text("protocol", "`amqp`"),
    _text("identity", "the connection's entity (`connection/7`)"),
    _PEER,
    _PORT,
    _CONTAINER,
    _USER,
    _MECHANISM,
    _TLS,
)
_LINK = (
    _perhaps(_text("log", "the log, if the address names one")),
    _text("address", "the address as given; empty for a sender that gives an address in each message"),
    _text("link", "the link's name"),
    _text("role", "the peer's role: `sender` or `receiver`"),
    _perhaps(_text("identity", "the link's entity (`link/7/1/3`), after it was attached")),
    _CONTAINER,
    _PEER,
    _PORT,
    _USER,
    _MECHANISM,
    _TLS,
)
_OWNED = (
    _LOG,
    _text("group", "the consumer group"),
    _number("partition", "the partition"),
    _number("epoch", "the recorded epoch; 0: none; an ulong if it is 2^63 or higher"),
    _CONTAINER,
    _text("link", "the owner's link"),
)
_CONSUMER = (
    _LOG,
    _text("owner", "a user, a container or `spark`"),
    _text("component", "the consumer's name, unique per owner"),
    _number("acknowledged", "the last event that it has acknowledged"),
)
_DAMAGED = (
    _text("path", "the file, relative to the data directory"),
    _text("problem", "the fault"),
    _perhaps(_number("first", "first damaged event, if the file is a segment")),
    _perhaps(_number("last", "its last damaged event")),
)
_LAG = (
    _text(
        "kind",
        "`registered`; `group`: the owner is a consumer group, the component its partition; `durable` or `receiver`: "
        "container and name of a link; `stream`: user and name of a stream",
    ),
    _perhaps(_number("partition", "the only partition that it reads")),
    _number("head", "the log's last event"),
    _number("lagEvents", "events after `acknowledged`, in its partition if it reads only one"),
    _number("lagMs", "age of the oldest of them; 0 if none"),
    _perhaps(_text("user", "the user of the link")),
)
_ACCOUNT = (
    _text("account", "the user's name"),
    _text("grants", "a JSON list of `RIGHT[,RIGHT...]:PATTERN`"),
)
_WEBHOOK = (
    _LOG,
    _text("endpoint", "the URI, without user information and query"),
)


def _entry(type: NotificationType, scope: Scope, when: str, *attributes: Attribute) -> tuple[NotificationType, Entry]:
    return type, Entry(type, when, scope, (*_FIRST, *attributes, *_LAST))


CATALOG: Mapping[NotificationType, Entry] = dict(
    (
        _entry(
            NotificationType.SERVER_STARTED,
            Scope.SERVER,
            "The server is ready.",
            _text("version", "Headwater's version"),
            _number("logs", "number of logs"),
            _text("data", "the data directory, or `memory`"),
        ),
        _entry(
            NotificationType.SERVER_STOPPING,
            Scope.SERVER,
            "The server is stopping and accepts no new requests.",
            _number("requests", "running HTTP requests, which may finish"),
            _number("streams", "subscriptions and WebSockets that are ended"),
        ),
        _entry(
            NotificationType.THREAD_FAILED,
            Scope.SERVER,
            "A background task failed and is restarted.",
            _text("name", "its name, such as `maintenance`"),
            _text("reason", "the error"),
            _number("restarts", "restarts so far"),
        ),
        _entry(
            NotificationType.CLOCK_JUMPED,
            Scope.SERVER,
            "The system clock jumped ahead; events get the trusted time instead.",
            _text("shown", "what the clock shows (RFC 3339)"),
            _text("trusted", "the time that events get (RFC 3339)"),
            _number("aheadMs", "the difference"),
            _number("patienceMs", "how long it must be stable to be trusted"),
        ),
        _entry(
            NotificationType.CLOCK_SETTLED,
            Scope.SERVER,
            "Events get the time of the system clock again.",
            _text(
                "how", "`returned` (the clock went back), `patience` (it stayed stable) or `accepted` (by an operator)"
            ),
            _text("trusted", "the time that events get (RFC 3339)"),
        ),
        _entry(
            NotificationType.SERVER_LOOP_HELD,
            Scope.SERVER,
            "Something blocked the event loop, and so all clients, for over 100 ms of CPU time. At most once a second.",
            _number("heldMs", "minimum time that the event loop was blocked"),
            _text("room", "the part of the server that blocked it (`amqp`, `dcb`, ...), or `unknown`"),
            _text("kind", "what that part did, such as a method and route, or `receiver of orders`"),
            _perhaps(_text("where", "the running line of code")),
            _number("untold", "unreported blocks since the last report"),
        ),
        _entry(
            NotificationType.SERVER_ROLE_CHANGED,
            Scope.SERVER,
            "A server of a shared home changed its role.",
            _text("role", "the new role: `taking over`, `primary` or `stepping down`"),
            _text("why", "the reason"),
            _number("term", "the term in which it appends or appended"),
        ),
        _entry(
            NotificationType.HOME_AWAY,
            Scope.SERVER,
            "The shared home does not answer this server.",
            _text("why", "how the server noticed"),
        ),
        _entry(NotificationType.HOME_BACK, Scope.SERVER, "The shared home answers again."),
        _entry(
            NotificationType.HOME_WENT_BACK,
            Scope.SERVER,
            "The shared home lost events, or may have lost some: appends are refused until an operator accepts this.",
            _text("why", "the missing events, as far as known"),
        ),
        _entry(
            NotificationType.HOME_ACCEPTED,
            Scope.SERVER,
            "An operator accepted the state of the shared home, or copies prove that nothing is missing.",
        ),
        _entry(
            NotificationType.HOME_NO_PRIMARY,
            Scope.SERVER,
            "The home's lease has been free for longer than a lease period: appends are impossible. Each replica "
            "reports this once until there is a primary again.",
            _text("why", "why this server cannot become the primary"),
        ),
        _entry(
            NotificationType.LOG_CREATED,
            Scope.LOG,
            "A log was created.",
            _LOG,
            _text("incarnation", "the identity of this log under its name"),
            _number("partitions", "number of partitions"),
            _BY,
        ),
        _entry(
            NotificationType.LOG_CHANGED,
            Scope.LOG,
            "The settings of a log were changed.",
            _LOG,
            _text(
                "settings",
                "a JSON object of the changed attributes",
            ),
            _BY,
        ),
        _entry(
            NotificationType.LOG_DELETED,
            Scope.LOG,
            "A log was deleted with all its events.",
            _LOG,
            _text("incarnation", "the identity of this log under its name"),
            _number("head", "its last event"),
            _BY,
        ),
        _entry(
            NotificationType.LOG_TRIMMED,
            Scope.LOG,
            "Events of a log were dropped, by retention or on request.",
            _LOG,
            _number("firstRetained", "the first readable event"),
            _number("previousFirstRetained", "its previous value"),
            _BY,
        ),
        _entry(
            NotificationType.LOG_UNAVAILABLE,
            Scope.SERVER,
            "A log cannot be used, or a read found damage in it.",
            _LOG,
            _text("problem", "the problem and its remedy"),
        ),
        _entry(
            NotificationType.LOG_AVAILABLE,
            Scope.SERVER,
            "An unavailable log can be used again, or was deleted.",
            _LOG,
        ),
        _entry(
            NotificationType.CONNECTION_OPENED,
            Scope.SERVER,
            "A peer opened a connection and logged in.",
            *_CONNECTION,
        ),
        _entry(
            NotificationType.CONNECTION_CLOSED,
            Scope.SERVER,
            "An open connection ended.",
            *_CONNECTION,
            _CONDITION,
            _DESCRIPTION,
        ),
        _entry(
            NotificationType.CONNECTION_REFUSED,
            Scope.SERVER,
            "A connection ended before it was open, or exceeded the limit.",
            _text("protocol", "`amqp` or `http`"),
            _PEER,
            _PORT,
            _text(
                "reason",
                "`limit`; `handshake` (TLS took too long while others waited); over AMQP also `stopping`, `login`, "
                "`timeout`, `fault`, `origin` (a PROXY header that no server of the home sent)",
            ),
            _DESCRIPTION,
            _perhaps(
                _number(
                    "count",
                    "refusals combined into this event, if there are more than ten per second",
                )
            ),
        ),
        _entry(NotificationType.LINK_ATTACHED, Scope.PEER, "A link was attached.", *_LINK),
        _entry(
            NotificationType.LINK_DETACHED,
            Scope.PEER,
            "A link was detached, or its session or connection ended.",
            *_LINK,
            _CONDITION,
            _DESCRIPTION,
        ),
        _entry(
            NotificationType.LINK_REFUSED,
            Scope.PEER,
            "An attach was refused.",
            *_LINK,
            _text("condition", "the AMQP error condition"),
            _DESCRIPTION,
        ),
        _entry(
            NotificationType.PARTITION_ASSIGNED, Scope.LOG, "A receiver of a consumer group got a partition.", *_OWNED
        ),
        _entry(
            NotificationType.PARTITION_STOLEN,
            Scope.LOG,
            "A receiver with a higher epoch took over a partition; `assigned` follows.",
            *_OWNED,
        ),
        _entry(
            NotificationType.PARTITION_RELEASED,
            Scope.LOG,
            "A partition lost its owner, which left or was removed.",
            *_OWNED,
        ),
        _entry(
            NotificationType.EPOCH_CHANGED,
            Scope.LOG,
            "A new epoch was recorded for a partition; 0 after a clean close by its owner.",
            _LOG,
            _text("group", "the consumer group"),
            _number("partition", "the partition"),
            _number("epoch", "the epoch; an ulong if it is 2^63 or higher"),
        ),
        _entry(
            NotificationType.CONSUMER_REGISTERED,
            Scope.LOG,
            "A consumer was registered, or registered again. It holds back trimming from now on.",
            *_CONSUMER,
            _number("epoch", "number of registrations"),
            _BY,
        ),
        _entry(
            NotificationType.CONSUMER_MOVED,
            Scope.LOG,
            "The position of a consumer was moved, forwards or backwards.",
            *_CONSUMER,
            _number("previous", "its previous position"),
            _BY,
        ),
        _entry(
            NotificationType.CONSUMER_UNREGISTERED,
            Scope.LOG,
            "A consumer was unregistered, by a request or because it was inactive for too long.",
            *_CONSUMER,
            _perhaps(_number("silentMs", "how long it was inactive, if that was the reason")),
            _BY,
        ),
        _entry(
            NotificationType.CONSUMER_LAGGING,
            Scope.LOG,
            "A registered consumer, a partition of a consumer group, a link or a stream is behind by more than "
            "`management.lag_events` or `management.lag_ms`.",
            *_CONSUMER,
            *_LAG,
        ),
        _entry(
            NotificationType.CONSUMER_CAUGHT_UP,
            Scope.LOG,
            "A lagging reader is within both limits again.",
            *_CONSUMER,
            *_LAG,
        ),
        _entry(
            NotificationType.APPEND_REJECTED,
            Scope.LOG,
            "A log refused appends in this second: overload, full disk, duplicate id.",
            _LOG,
            _COUNT,
            _number("duplicates", "number of them with a duplicate id"),
            _INTERVAL,
        ),
        _entry(
            NotificationType.CONDITION_FAILED,
            Scope.LOG,
            "Conditions of appends failed in this second.",
            _LOG,
            _COUNT,
            _INTERVAL,
        ),
        _entry(
            NotificationType.DISK_LOW,
            Scope.SERVER,
            "Less free space than the reserve is left: appends are refused.",
            _text("path", "the data directory"),
            _number("freeBytes", "free space"),
            _number("reserveBytes", "required free space"),
            _perhaps(
                _number(
                    "refusedBytes",
                    "bytes refused despite the free space, for example by a quota",
                )
            ),
        ),
        _entry(
            NotificationType.DISK_RECOVERED,
            Scope.SERVER,
            "There is enough free space again.",
            _text("path", "the data directory"),
            _number("freeBytes", "free space"),
            _number("reserveBytes", "required free space"),
        ),
        _entry(
            NotificationType.SCRUB_DAMAGED,
            Scope.SERVER,
            "The scrub found a damaged file. Its damaged events are not served.",
            *_DAMAGED,
        ),
        _entry(
            NotificationType.SCRUB_MENDED,
            Scope.SERVER,
            "A damaged file was repaired from the home, or is intact again.",
            *_DAMAGED,
            _perhaps(_text("source", "`home`, if repaired from there")),
        ),
        _entry(
            NotificationType.SCRUB_ENDED,
            Scope.SERVER,
            "The scrub finished a pass over all files of the data directory.",
            _number("files", "files verified"),
            _number("bytes", "bytes read"),
            _number("unprovedBytes", "bytes from the page cache, on a file system without O_DIRECT"),
            _number("damaged", "known damaged places"),
            _number("durationMs", "duration of the pass"),
        ),
        _entry(
            NotificationType.SEGMENT_SEALED,
            Scope.LOG,
            "A sealed segment was indexed.",
            _LOG,
            _number("first", "its first event"),
            _number("last", "its last event"),
            _number("bytes", "its size"),
        ),
        _entry(
            NotificationType.ARCHIVE_PROGRESSED,
            Scope.LOG,
            "A consumer with the component `ARCHIVER` (in any case) acknowledged events in this second.",
            *_CONSUMER,
            _number("count", "sequence numbers that it advanced"),
            _INTERVAL,
        ),
        _entry(
            NotificationType.WEBHOOK_FAILING,
            Scope.SERVER,
            "Delivery to a webhook failed; it is retried. Reported again only after a recovery.",
            *_WEBHOOK,
            _text("reason", "the reason"),
        ),
        _entry(
            NotificationType.WEBHOOK_RECOVERED,
            Scope.SERVER,
            "Delivery to a failing endpoint succeeded again.",
            *_WEBHOOK,
        ),
        _entry(
            NotificationType.WEBHOOK_FORGOTTEN,
            Scope.SERVER,
            "An endpoint was suspended for longer than `cne.forget_after_ms`; its subscriptions were deleted.",
            *_WEBHOOK,
            _number("subscriptions", "deleted subscriptions"),
            _number("missed", "number of events in the log after the last processed one"),
        ),
        _entry(
            NotificationType.AUTHENTICATION_FAILED,
            Scope.SERVER,
            "Credentials were refused, or are missing although required.",
            _text("reason", "the reason"),
            _text("user", "the given name; empty if none"),
            _text("peer", "the peer's address"),
        ),
        _entry(
            NotificationType.USER_CREATED,
            Scope.SERVER,
            "A user was added to the data directory.",
            *_ACCOUNT,
            _BY,
        ),
        _entry(
            NotificationType.USER_CHANGED,
            Scope.SERVER,
            "The grants, password, tokens or key of a user were changed.",
            *_ACCOUNT,
            _text("changed", "`grants`, `password`, `tokens`, `key`, separated by commas"),
            _BY,
        ),
        _entry(
            NotificationType.USER_DELETED,
            Scope.SERVER,
            "A user was removed from the data directory.",
            _text("account", "the user's name"),
            _BY,
        ),
    )
)
"""All types, in the order in which they are documented."""
_PERSONAL: Mapping[NotificationType, frozenset[str]] = {
    entry.type: names
    for entry in CATALOG.values()
    if (names := frozenset(each.name for each in entry.attributes if each.is_personal))
}
