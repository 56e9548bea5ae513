"""Every notification type: when it is emitted, its attributes in order, and who may see it.

`tests.docs.events` makes their reference of it, docs/reference/events.md.
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
    """The log named by the attribute `log`: visible with the right to read that log. Without this attribute (the
    address names no log, say) it is about the server.
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
    """Whether a user may see it: events of a log need the right to read it, those of the server the right to manage it.

    Users may always see what their own peers do.
    """
    attributes, scope = notification.attributes, CATALOG[notification.type].scope
    log = attributes.get("log")
    if scope is Scope.LOG and attributes.get("kind") in _OF_PEERS:
        scope = Scope.PEER  # it is about a link, as `link.*` is
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
"""The attribute that a queue adds: how many notifications the listener lost before this one."""


_BY = Attribute.text(
    "user",
    "the user who asked for it; not there if the server knows none, or the listener may not see it",
    is_required=False,
    is_personal=True,
)


def _perhaps(attribute: Attribute) -> Attribute:
    return replace(attribute, is_required=False)


_text, _number = Attribute.text, Attribute.number


_FIRST = (
    _text("eventType", "the name of the type"),
    Attribute.timestamp("time", "when it happened, by the server's clock"),
)
_LAST = (
    _perhaps(_number(LOST, "how many notifications this listener has lost just before: it did not take them in time")),
)
_LOG = _text("log", "the log")
_COUNT = _number("count", "how many there were in that second, in all")
_INTERVAL = _number("intervalMs", "over how many ms they were counted: about 1,000")
_PEER = _text("peer", "the peer's address")
_CONTAINER = _text("container", "the peer's container id")
_USER = _perhaps(_text("user", "the authenticated user; not there where no user is configured"))
_CONDITION = _perhaps(_text("condition", "the AMQP error condition; not there if there was no error"))
_DESCRIPTION = _perhaps(_text("description", "what was wrong, in words"))
_PORT = _perhaps(_number("port", "the peer's port"))
_MECHANISM = _text("mechanism", "the SASL mechanism; empty if there was no SASL")
_TLS = _perhaps(_text("tls", "the version of TLS; not there where there is none"))
_CONNECTION = (
    _text("protocol", "`amqp`"),
    _text("identity", "the connection's entity: `connection/7`"),
    _PEER,
    _PORT,
    _CONTAINER,
    _USER,
    _MECHANISM,
    _TLS,
)
_LINK = (
    _perhaps(_text("log", "the log; not there where the address names none")),
    _text("address", "the address as the peer gave it; empty for a sender that names one in each message"),
    _text("link", "the link's name"),
    _text("role", "`sender` or `receiver`: what the peer is"),
    _perhaps(_text("identity", "the link's entity: `link/7/1/3`; not there if it never was attached")),
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
    _number("epoch", "the epoch recorded of that partition; 0 = none; from 2^63 on an ulong"),
    _CONTAINER,
    _text("link", "the name of the owner's link"),
)
_CONSUMER = (
    _LOG,
    _text("owner", "the consumer's owner: a user, a container, `spark`"),
    _text("component", "which of the owner's consumers"),
    _number("acknowledged", "the number of the last event that it has acknowledged"),
)
_DAMAGED = (
    _text("path", "the file, below the data directory"),
    _text("problem", "the fault"),
    _perhaps(_number("first", "the number of the first damaged event of a segment")),
    _perhaps(_number("last", "the number of the last one")),
)
_LAG = (
    _text(
        "kind",
        "`registered`; `group`: the owner is a consumer group, the component its partition; `durable` or `receiver`: "
        "they are the container and the name of a link; `stream`: they are the user and the name of a stream",
    ),
    _perhaps(_number("partition", "the only partition that it reads")),
    _number("head", "the number of the last event of the log"),
    _number("lagEvents", "how many events wait after `acknowledged`: of its partition, where it reads only one"),
    _number("lagMs", "how old the oldest event is that it has not acknowledged; 0 if there is none"),
    _perhaps(_text("user", "the user whose link it is")),
)
_ACCOUNT = (
    _text("account", "the user's name"),
    _text("grants", "what it may do now, as a JSON list of `RIGHT[,RIGHT...]:PATTERN`"),
)
_WEBHOOK = (
    _LOG,
    _text("endpoint", "the URI to which events are delivered, without user information and query"),
)


def _entry(type: NotificationType, scope: Scope, when: str, *attributes: Attribute) -> tuple[NotificationType, Entry]:
    return type, Entry(type, when, scope, (*_FIRST, *attributes, *_LAST))


CATALOG: Mapping[NotificationType, Entry] = dict(
    (
        _entry(
            NotificationType.SERVER_STARTED,
            Scope.SERVER,
            "The server is ready.",
            _text("version", "the version of Headwater"),
            _number("logs", "how many logs there are"),
            _text("data", "the data directory, or `memory`"),
        ),
        _entry(
            NotificationType.SERVER_STOPPING,
            Scope.SERVER,
            "The server was asked to stop, and takes nothing new.",
            _number("requests", "how many HTTP requests run, which may finish"),
            _number("streams", "how many subscriptions and WebSockets are ended"),
        ),
        _entry(
            NotificationType.THREAD_FAILED,
            Scope.SERVER,
            "A background task failed, and is restarted.",
            _text("name", "what it is: `maintenance`, say"),
            _text("reason", "the error"),
            _number("restarts", "how often it was restarted so far"),
        ),
        _entry(
            NotificationType.CLOCK_JUMPED,
            Scope.SERVER,
            "The system's clock went further ahead than time can have passed; events keep the time that is trusted.",
            _text("shown", "what the clock shows (RFC 3339)"),
            _text("trusted", "the time that events get (RFC 3339)"),
            _number("aheadMs", "the difference"),
            _number("patienceMs", "how long the clock must stay so until it is believed"),
        ),
        _entry(
            NotificationType.CLOCK_SETTLED,
            Scope.SERVER,
            "Events get the time of the system's clock again.",
            _text(
                "how", "`returned` (the clock went back), `patience` (it stayed as it is), `accepted` (by an operator)"
            ),
            _text("trusted", "the time that events get (RFC 3339)"),
        ),
        _entry(
            NotificationType.SERVER_LOOP_HELD,
            Scope.SERVER,
            "Something has held the event loop, and so everybody, for more than 100 ms of the server's own CPU time. "
            "At most once a second.",
            _number("heldMs", "for how long, at least"),
            _text("room", "the room that did: `amqp`, `dcb`, `futoin`, `cne` and others; or `unknown`"),
            _text("kind", "the kind of request or of work: a method and a route, say, or `receiver of orders`"),
            _perhaps(_text("where", "the line of the code that was run, if it was seen")),
            _number("untold", "how many others there were since the last one that was reported"),
        ),
        _entry(
            NotificationType.SERVER_ROLE_CHANGED,
            Scope.SERVER,
            "A server of a shared home has another role in it.",
            _text("role", "what it is now: `taking over`, `primary` or `stepping down`"),
            _text("why", "what made it so"),
            _number("term", "the term in which it appends, or did"),
        ),
        _entry(
            NotificationType.HOME_AWAY,
            Scope.SERVER,
            "The shared home does not answer this server.",
            _text("why", "how that was noticed"),
        ),
        _entry(NotificationType.HOME_BACK, Scope.SERVER, "The shared home answers again."),
        _entry(
            NotificationType.HOME_WENT_BACK,
            Scope.SERVER,
            "The shared home lacks what it had, or may: nobody appends until an operator accepted that.",
            _text("why", "what it lacks, as far as this server knows"),
        ),
        _entry(
            NotificationType.HOME_ACCEPTED,
            Scope.SERVER,
            "An operator accepted what the shared home has, or copies prove that it lacks nothing.",
        ),
        _entry(
            NotificationType.HOME_NO_PRIMARY,
            Scope.SERVER,
            "The lease of the shared home has been free for longer than a lease lasts: nothing can be appended. Each "
            "replica says so once, until there is a primary again.",
            _text("why", "what keeps this server from being the primary"),
        ),
        _entry(
            NotificationType.LOG_CREATED,
            Scope.LOG,
            "A log was made.",
            _LOG,
            _text("incarnation", "the identity of this log under its name"),
            _number("partitions", "how many partitions it has"),
            _BY,
        ),
        _entry(
            NotificationType.LOG_CHANGED,
            Scope.LOG,
            "A log was given other settings.",
            _LOG,
            _text(
                "settings",
                "the settings that differ now, as a JSON object of their new values, by the names of the entity",
            ),
            _BY,
        ),
        _entry(
            NotificationType.LOG_DELETED,
            Scope.LOG,
            "A log was deleted with all its events.",
            _LOG,
            _text("incarnation", "the identity of the log that is gone"),
            _number("head", "the number of its last event"),
            _BY,
        ),
        _entry(
            NotificationType.LOG_TRIMMED,
            Scope.LOG,
            "Events of a log were dropped: by retention, or because somebody asked for it.",
            _LOG,
            _number("firstRetained", "the number from which events can be read now"),
            _number("previousFirstRetained", "and from which they could be read before"),
            _BY,
        ),
        _entry(
            NotificationType.LOG_UNAVAILABLE,
            Scope.SERVER,
            "A log cannot be used, or a read found damage in it.",
            _LOG,
            _text("problem", "the problem, and a way out"),
        ),
        _entry(
            NotificationType.LOG_AVAILABLE,
            Scope.SERVER,
            "A log that was unavailable can be used again, or is gone.",
            _LOG,
        ),
        _entry(
            NotificationType.CONNECTION_OPENED,
            Scope.SERVER,
            "A peer has opened a connection, and is logged in.",
            *_CONNECTION,
        ),
        _entry(
            NotificationType.CONNECTION_CLOSED,
            Scope.SERVER,
            "A connection that was open has ended.",
            *_CONNECTION,
            _CONDITION,
            _DESCRIPTION,
        ),
        _entry(
            NotificationType.CONNECTION_REFUSED,
            Scope.SERVER,
            "A connection has ended before it was open, or was one too many.",
            _text("protocol", "`amqp` or `http`"),
            _PEER,
            _PORT,
            _text(
                "reason",
                "`limit`: too many connections; `handshake`: TLS took too long while others waited; over AMQP also "
                "`stopping`, `login`: not logged in, `timeout`, `fault`, `origin`: a PROXY header that no server of "
                "the home sent",
            ),
            _DESCRIPTION,
            _perhaps(_number("count", "how many it stands for: of more than ten in a second, the others are one")),
        ),
        _entry(NotificationType.LINK_ATTACHED, Scope.PEER, "A link was attached.", *_LINK),
        _entry(
            NotificationType.LINK_DETACHED,
            Scope.PEER,
            "A link that was attached has ended: detached by one side, or with its session or connection.",
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
            "A receiver with a higher epoch takes a partition over; it is reported as the next owner after this.",
            *_OWNED,
        ),
        _entry(
            NotificationType.PARTITION_RELEASED,
            Scope.LOG,
            "A partition of a consumer group has no owner any more: it left, or was asked to leave.",
            *_OWNED,
        ),
        _entry(
            NotificationType.EPOCH_CHANGED,
            Scope.LOG,
            "Another epoch was recorded for a partition of a consumer group; 0 after an owner's clean close.",
            _LOG,
            _text("group", "the consumer group"),
            _number("partition", "the partition"),
            _number("epoch", "the epoch; from 2^63 on an ulong"),
        ),
        _entry(
            NotificationType.CONSUMER_REGISTERED,
            Scope.LOG,
            "A reliable consumer was registered, or registered again. From now on it holds trimming back.",
            *_CONSUMER,
            _number("epoch", "how often it has registered"),
            _BY,
        ),
        _entry(
            NotificationType.CONSUMER_MOVED,
            Scope.LOG,
            "Somebody has set the position of a consumer, back or forth.",
            *_CONSUMER,
            _number("previous", "what it had acknowledged before"),
            _BY,
        ),
        _entry(
            NotificationType.CONSUMER_UNREGISTERED,
            Scope.LOG,
            "A consumer was unregistered: by a call, or because it was not heard of for too long.",
            *_CONSUMER,
            _perhaps(_number("silentMs", "for how long it was not heard of; not there if somebody asked for it")),
            _BY,
        ),
        _entry(
            NotificationType.CONSUMER_LAGGING,
            Scope.LOG,
            "Somebody who reads a log from a position on has fallen behind further than `management.lag_events` or "
            "`management.lag_ms`: a registered consumer, a consumer group in a partition, a link, a stream.",
            *_CONSUMER,
            *_LAG,
        ),
        _entry(
            NotificationType.CONSUMER_CAUGHT_UP,
            Scope.LOG,
            "A consumer that was reported as lagging is within both bounds again.",
            *_CONSUMER,
            *_LAG,
        ),
        _entry(
            NotificationType.APPEND_REJECTED,
            Scope.LOG,
            "Appends were refused by a log in this second: overload, a full disk, an id that is taken.",
            _LOG,
            _COUNT,
            _number("duplicates", "how many of them because of an id that is taken"),
            _INTERVAL,
        ),
        _entry(
            NotificationType.CONDITION_FAILED,
            Scope.LOG,
            "Appends failed their condition in this second.",
            _LOG,
            _COUNT,
            _INTERVAL,
        ),
        _entry(
            NotificationType.DISK_LOW,
            Scope.SERVER,
            "The file system of the data has less free space than its reserve: appends fail.",
            _text("path", "the data directory"),
            _number("freeBytes", "what is free"),
            _number("reserveBytes", "what must be free"),
            _perhaps(_number("refusedBytes", "what the file system refused, though so much is free (a quota, say)")),
        ),
        _entry(
            NotificationType.DISK_RECOVERED,
            Scope.SERVER,
            "There is enough free space again.",
            _text("path", "the data directory"),
            _number("freeBytes", "what is free"),
            _number("reserveBytes", "what must be free"),
        ),
        _entry(
            NotificationType.SCRUB_DAMAGED,
            Scope.SERVER,
            "The scrub found a file that is damaged on the disk. No reader gets its damaged events.",
            *_DAMAGED,
        ),
        _entry(
            NotificationType.SCRUB_MENDED,
            Scope.SERVER,
            "A file is whole again that was damaged: the scrub found it so, or mended it from the home.",
            *_DAMAGED,
            _perhaps(
                _text("source", "`home`: the events were fetched from there; not there if the file was found whole")
            ),
        ),
        _entry(
            NotificationType.SCRUB_ENDED,
            Scope.SERVER,
            "The scrub has verified every file of the data directory once.",
            _number("files", "how many files"),
            _number("bytes", "how many bytes were read"),
            _number("unprovedBytes", "how many of them came from the page cache: the file system has no O_DIRECT"),
            _number("damaged", "how many damaged places are known"),
            _number("durationMs", "how long the pass took"),
        ),
        _entry(
            NotificationType.SEGMENT_SEALED,
            Scope.LOG,
            "A segment that is written no more was indexed.",
            _LOG,
            _number("first", "the number of its first event"),
            _number("last", "the number of its last event"),
            _number("bytes", "its size"),
        ),
        _entry(
            NotificationType.ARCHIVE_PROGRESSED,
            Scope.LOG,
            "A consumer whose component is `ARCHIVER`, in whatever case, has acknowledged more in this second.",
            *_CONSUMER,
            _number("count", "by how many sequence numbers"),
            _INTERVAL,
        ),
        _entry(
            NotificationType.WEBHOOK_FAILING,
            Scope.SERVER,
            "A webhook was not taken by its endpoint; it is tried again, not reported again until it recovers.",
            *_WEBHOOK,
            _text("reason", "what happened instead"),
        ),
        _entry(
            NotificationType.WEBHOOK_RECOVERED,
            Scope.SERVER,
            "An endpoint that was reported as failing has taken a webhook again.",
            *_WEBHOOK,
        ),
        _entry(
            NotificationType.WEBHOOK_FORGOTTEN,
            Scope.SERVER,
            "An endpoint was suspended for longer than `cne.forget_after_ms`; its subscriptions were deleted.",
            *_WEBHOOK,
            _number("subscriptions", "how many it had"),
            _number("missed", "events in the log after the last one that it was done with"),
        ),
        _entry(
            NotificationType.AUTHENTICATION_FAILED,
            Scope.SERVER,
            "Credentials were refused, or are missing where some are needed.",
            _text("reason", "what was wrong"),
            _text("user", "the name that was given; empty if none was"),
            _text("peer", "the peer's address"),
        ),
        _entry(
            NotificationType.USER_CREATED,
            Scope.SERVER,
            "A user was added to the data directory: by management, or by the command line.",
            *_ACCOUNT,
            _BY,
        ),
        _entry(
            NotificationType.USER_CHANGED,
            Scope.SERVER,
            "A user was given other grants, or another password, token or key.",
            *_ACCOUNT,
            _text("changed", "what is another now: `grants`, `password`, `tokens`, `key`, with commas between them"),
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
