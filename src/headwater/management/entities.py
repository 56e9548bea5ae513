"""The manageable entity types, as data: attributes and operations.

`tests.docs.entities` generates the tables of docs/reference/management.md from it. `ports.Entities` lists the entities
and performs the operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import attributes
from .attributes import Kind

NODE_TYPE = "org.amqp.management"
"""The type of the management node (AMQP Management 3.4), itself an entity, named `self`."""
SELF = "self"
CREATE, READ, UPDATE, DELETE = "CREATE", "READ", "UPDATE", "DELETE"
DROPS_AT_MOST = "drops_at_most"
"""The argument of operations that may drop events: the maximum number to drop. Without it, they may drop none."""


@dataclass(frozen=True, slots=True)
class Attribute(attributes.Attribute):
    """An attribute of an entity type."""

    is_initial: bool = False
    """Whether CREATE accepts it."""
    is_changeable: bool = False
    """Whether UPDATE accepts it."""
    is_removable: bool = False
    """Whether it may be null, which means none."""
    is_fleeting: bool = False
    """Whether it changes constantly by itself. An UPDATE that writes back an older value of it is accepted."""
    is_secret: bool = False
    """Whether it is write-only."""


@dataclass(frozen=True, slots=True)
class EntityType:
    """An entity type."""

    name: str
    about: str
    operations: Mapping[str, tuple[str, ...]]
    """The operations of an entity, with their argument names (AMQP Management 3.4.6)."""
    own: tuple[Attribute, ...]

    @property
    def word(self) -> str:
        """The last part of the type name, used in identities: `log`."""
        return self.name.rpartition(".")[2]

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """All attributes; those common to every entity come first."""
        return (*COMMON, *self.own)

    @property
    def attribute_names(self) -> list[str]:
        """What GET-ATTRIBUTES answers: the readable attributes."""
        return [attribute.name for attribute in self.attributes if not attribute.is_secret]

    def attribute(self, name: str) -> Attribute | None:
        """The attribute with that name."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)


COMMON = (
    Attribute.text("name", "unique within the type"),
    Attribute.text("identity", "unique among all entities: the last word of its type, a slash, and its name"),
    Attribute.text("type", "its type"),
)


def identity_of(type: str, name: str) -> str:
    """The identity of an entity."""
    return f"{type.rpartition('.')[2]}/{name}"


def _map(name: str, meaning: str, *, is_fleeting: bool = False) -> Attribute:
    return Attribute(name, Kind.MAP, meaning, is_fleeting=is_fleeting)


_text, _number, _flag, _time = Attribute.text, Attribute.number, Attribute.flag, Attribute.timestamp
_READ_ONLY: dict[str, tuple[str, ...]] = {READ: ()}
_CLOSED: dict[str, tuple[str, ...]] = {READ: (), DELETE: ()}

MANAGEMENT_NODE = EntityType(
    NODE_TYPE,
    "the node `$management`, named `self`",
    {
        READ: (),
        "QUERY": ("entityType", "offset", "count", "filter"),
        **{name: ("entityType",) for name in ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS")},
        "GET-MGMT-NODES": (),
        "GET-EVENTS": ("eventType",),
    },
    (),
)
SERVER = EntityType(
    "io.headwater.server",
    "the server, its disk, and its AMQP counters since the start, named `self`",
    _READ_ONLY,
    (
        _text("product", "Headwater"),
        _text("version", "its version"),
        _text("containerId", "its AMQP container id"),
        _time("startedAt", "when its AMQP front end started"),
        _number("logs", "number of logs"),
        _text("unready", "why it is not ready; or null"),
        Attribute("troubles", Kind.STRINGS, "problems for an operator, while the server is running"),
        _number("diskBytes", "size of the file system of the data directory; null if storage is in memory"),
        _number("diskFreeBytes", "free space on this file system"),
        _number("diskReserveBytes", "free space below which appends are refused"),
        _number("connections", "current AMQP connections"),
        _number("connectionsMax", "maximum number of AMQP connections"),
        _number("httpConnectionsMax", "maximum number of HTTP connections"),
        _number("connectionsTaken", "accepted AMQP connections"),
        _number(
            "connectionsRefused", "AMQP connections refused because there were too many or the server was shutting down"
        ),
        _number("faults", "connections ended by a protocol error of the peer"),
        _number("linksAttached", "accepted attaches"),
        _number("linksRefused", "refused attaches"),
        _number("messagesReceived", "messages from producers"),
        _number("messagesRejected", "rejected messages from producers"),
        _number("messagesSent", "messages to consumers"),
        _number("messagesSentAgain", "messages sent again after their receiver released them"),
    ),
)
HOME_SERVER = EntityType(
    "io.headwater.homeServer",
    "a server of this server's home, as it last reported. Its name is the name of the server, with a number if "
    "another server was started with that name",
    _READ_ONLY,
    (
        _text("server", "its host and port"),
        _map("addresses", "its addresses for clients, by protocol"),
        _text("role", "`primary`, `following`, `taking over`, `stepping down`, `went back`, `starting` or `stopped`"),
        _number("term", "the term in which it appends; or null"),
        _time("since", "when it became the primary; null if it is not the primary, or if this is unknown"),
        _text("why", "why it became the primary; or null"),
        _number("lag", "events missing from its copy at its last check; null before the first"),
        _number("lagMs", "how long its copy has been behind, at most; null if the copy was never complete"),
        _text("ahead", "events that only its copy contains; null if none"),
        _text("version", "its version"),
        _number("heardMs", "time since it last reported to the home"),
        _flag("runs", "whether it reported recently enough"),
    ),
)
LOG = EntityType(
    "io.headwater.log",
    "a log, by its name",
    {CREATE: (), READ: (), UPDATE: (DROPS_AT_MOST,), DELETE: ()},
    (
        _text("incarnation", "the identity of this log under its name"),
        _time("createdAt", "when it was created"),
        _number("partitions", "1 to 1024; fixed at creation", is_initial=True),
        _text(
            "partitionBy",
            "the partition of events without a group key: empty, `source`, `subject` or `tag:KEY`; fixed at creation",
            is_initial=True,
        ),
        _number(
            "retentionMs", "events older than this may be trimmed", is_initial=True, is_changeable=True,
            is_removable=True,
        ),
        _number(
            "retentionBytes", "the oldest segments above this size may be trimmed", is_initial=True,
            is_changeable=True, is_removable=True,
        ),
        _flag(
            "retentionUntilAcknowledged", "events acknowledged by every registered consumer may be trimmed",
            is_initial=True, is_changeable=True,
        ),
        _number("eventBytesMax", "largest event", is_initial=True, is_changeable=True),
        _number(
            "idHorizon", "ids are unique among this number of newest events; null: among all retained events",
            is_initial=True, is_changeable=True, is_removable=True,
        ),
        _flag("keepsHistory", "append conditions still consider trimmed events", is_initial=True, is_changeable=True),
        _number(
            "consumerAgeMsMax", "consumers that are inactive for this long are unregistered; null: never",
            is_initial=True, is_changeable=True, is_removable=True,
        ),
        _text(
            "defaultStart", "start of AMQP receivers without a position: `latest` or `earliest`",
            is_initial=True, is_changeable=True,
        ),
        _number("head", "the last event; 0 if there never was one"),
        _number("firstRetained", "the first readable event"),
        _number("events", "retained events"),
        _number("bytes", "bytes of events on the disk"),
        _number("allocatedBytes", "bytes of files, including preallocated space"),
        _number("appends", "successful appends since it was opened"),
        _number("eventsAppended", "their events"),
        _number("bytesAppended", "their bytes"),
        _number("commits", "group commits, each with one sync"),
        _number("conditionsFailed", "appends whose condition failed"),
        _number("duplicates", "appends with an existing id"),
        _number("refused", "other refused appends"),
        _number("eventsRead", "events read"),
        _number("queuedRequests", "appends waiting to be committed"),
        _number("queuedBytes", "their bytes"),
        _number("segments", "segments"),
        _text("problem", "why it cannot be opened; if null, all attributes above are set"),
    ),
)  # fmt: skip
PARTITION = EntityType(
    "io.headwater.partition",
    "a partition of a log: `LOG/NUMBER`",
    _READ_ONLY,
    (
        _text("log", "the log"),
        _number("number", "its number, from 0"),
        _number("events", "retained events"),
        _number("first", "its first retained event; null if none"),
        _number("last", "its last event; null if none"),
        _time("firstAt", "when the first event was recorded"),
        _time("lastAt", "when the last event was recorded"),
    ),
)
CONNECTION = EntityType(
    "io.headwater.connection",
    "an AMQP connection: a number from 1",
    _CLOSED,
    (
        _text("containerId", "the peer's container id"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port; null if none"),
        _text("user", "the authenticated user; empty without users"),
        _text("mechanism", "the SASL mechanism; empty without SASL"),
        _text("tls", "the TLS version; null without TLS"),
        _time("openedAt", "when it was accepted"),
        _text(
            "stage",
            "what it expects next: `a protocol header`, `SASL frames`, `an open`, `frames` or `nothing`",
        ),
        _number("sessions", "current sessions"),
        _number("links", "current links"),
        _number("bytesReceived", "bytes received"),
        _number("bytesSent", "bytes sent"),
        _number("bytesHeld", "bytes from producers that are not durable yet"),
        _number("frameBytesMax", "the peer's maximum frame size"),
        _number("idleTimeoutMs", "the peer's idle time-out; null if none"),
        _text("product", "the peer's product, as stated by the peer"),
        _map("properties", "strings and numbers of the peer's open properties"),
    ),
)
SESSION = EntityType(
    "io.headwater.session",
    "a session: `CONNECTION/SESSION`, numbers from 1",
    _CLOSED,
    (
        _text("connection", "the connection's name"),
        _number("channel", "the server's outgoing channel"),
        _number("links", "current links"),
        _number("sendable", "transfers that the peer's window allows"),
    ),
)
LINK = EntityType(
    "io.headwater.link",
    "a link: `CONNECTION/SESSION/LINK`, numbers from 1",
    _CLOSED,
    (
        _text("connection", "the connection's name"),
        _text("session", "the session's name"),
        _text("linkName", "the link's name, chosen by the peer"),
        _text("containerId", "the peer's container id"),
        _text("role", "the peer's role: `sender` or `receiver`"),
        _text("address", "the peer's target or source"),
        _text("log", "its log; null if none"),
        _number("handle", "the server's handle"),
        _number("credit", "remaining link credit"),
        _number("deliveries", "messages since the attach"),
        _number("unsettled", "receivers: unsettled messages; otherwise null"),
        _number("unsettledMax", "receivers: maximum number of unsettled messages"),
        _time("attachedAt", "when it was attached"),
        _time("messageAt", "time of the last message; null if none"),
        _text(
            "waitsFor",
            "what the next message waits for. Receivers: `outcomes` (unsettled messages), `credit`, `window` (of the "
            "session), `reading` (the peer does not read), `events` (it is up to date) or `partition` (of its group). "
            "Producers: `messages`, or `the log` (busy writing). null: nothing",
        ),
        _time(
            "waitsSince",
            "earliest time when it may have started to wait: the last message, or the last outcome for `outcomes`",
        ),
        _flag("isAttached", "whether both sides are attached"),
        _number(
            "partition",
            "receivers: its only partition; null: all partitions, or all that its group assigned",
        ),
        _text("group", "receivers: the consumer group; null if none"),
        _number("epoch", "members of a group: the epoch under which they own the partition"),
        _map("filter", "receivers: the filters in effect, as text"),
        _number("position", "receivers: everything up to this number is settled; null without a partition"),
        _number("lag", "receivers: events after this position, in `partition` if set"),
        _number("lagMs", "receivers: age of the first event after this position; 0 if none"),
        _number("sentAgain", "receivers: messages sent again after a release"),
    ),
)
DURABLE_LINK = EntityType(
    "io.headwater.durableLink",
    "a durable receiver of a log, attached or not: `LOG/CONTAINER/LINK`, escaped like a consumer's",
    _CLOSED,
    (
        _text("log", "the log"),
        _text("container", "the peer's container id; if there are users, preceded by its user and `@`"),
        _text("linkName", "the link's name, chosen by the peer"),
        _number("position", "everything up to this number is processed"),
        _number("lag", "events in the log after this position"),
        _number("lagMs", "age of the first event after this position; 0 if none"),
        _text("expiryPolicy", "when it expires: `never`, or after `connection-close`, `session-end`, `link-detach`"),
        _time("expiresAt", "when it expires; null: at no fixed time"),
        _time("detachedAt", "when it lost its link; null while attached"),
        _flag("isDurable", "whether it survives a restart"),
        _flag("isAttached", "whether it has a link; then it cannot be deleted"),
    ),
)
CLIENT = EntityType(
    "io.headwater.client",
    "a client of another protocol: `http/ADDRESS:PORT`, `websocket/ADDRESS:PORT` or `flight/USER@ADDRESS`",
    _CLOSED,
    (
        _text("protocol", "`http`, `websocket` or `flight`"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port; null for Flight"),
        _text("user", "the user of the last request; empty if none"),
        _time("openedAt", "when it was accepted; for Flight, the first request"),
        _time("seenAt", "for Flight, the last request, which is listed for an hour; otherwise null"),
        _text("tls", "the TLS version; null without TLS, and for Flight"),
        _text("request", "method and path of the last request; null if none, and for Flight"),
        _flag("isAnswering", "whether it is still being answered, such as a subscription; null for Flight"),
    ),
)
READER = EntityType(
    "io.headwater.reader",
    "an HTTP subscription, a FutoIn push, or a Flight stream that lasts longer than a second: a number from 1",
    _CLOSED,
    (
        _text("protocol", "`http`, `futoin` or `flight`"),
        _text("log", "the log"),
        _text("user", "the authenticated user; empty without users"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port; null if none"),
        _text("wants", "the query or event types, as given; null: all"),
        _text("component", "FutoIn: the consumer's component, `LIVE` if not registered"),
        _number("partition", "its only partition; null: all"),
        _time("startedAt", "when it started"),
        _number("events", "events sent to it"),
        _number("position", "all matching events up to this number were sent; null for Flight, like both lags"),
        _number("lag", "events in the log after this position"),
        _number("lagMs", "age of the first event after this position; 0 if none"),
        _time("sentAt", "when events were last sent; null: never"),
        _text(
            "waitsFor",
            "what the next event waits for: `reading` (the peer does not read), `answers` (to FutoIn pushes), `events`",
        ),
        _time("waitsSince", "when it started to wait"),
    ),
)
REFUSAL = EntityType(
    "io.headwater.refusal",
    "recent refusals of one peer and user for one reason: a number from 1. The newest 1,000 are kept for an hour, at "
    "most 16 per peer",
    _READ_ONLY,
    (
        _text("kind", "`connection`, `login` or `access`"),
        _text(
            "reason",
            "connections: `limit`, `stopping`; logins: `missing`, `wrong`, `hasty`, `unchecked`; accesses: `forbidden`",
        ),
        _text("protocol", "connections: `amqp` or `http`; otherwise null"),
        _text("user", "the given name, or the user who lacks a right; null beyond the distinguished users"),
        _text("peer", "the peer's address; null for accesses"),
        _text("right", "accesses: the right that was last missing"),
        _text("log", "accesses: the log, or `*`"),
        _number("count", "number of refusals"),
        _time("firstAt", "time of the first one"),
        _time("lastAt", "time of the last one"),
    ),
)
CONSUMER = EntityType(
    "io.headwater.consumer",
    "a registered consumer, which holds back trimming: `LOG/OWNER/COMPONENT`, with `%2F` for a slash within a part and "
    "`%25` for a percent sign",
    {CREATE: (DROPS_AT_MOST,), READ: (), UPDATE: (DROPS_AT_MOST,), DELETE: (DROPS_AT_MOST,)},
    (
        _text("log", "the log"),
        _text("owner", "a user, a container or `spark`"),
        _text("component", "its name, unique per owner"),
        _number(
            "acknowledged", "everything up to this number is acknowledged; UPDATE moves it; CREATE uses the head by "
            "default", is_initial=True, is_changeable=True,
        ),
        _number("lag", "events in the log after this position", is_fleeting=True),
        _number(
            "lagMs", "age of the first event after this position; 0 if none", is_fleeting=True
        ),
        _number("epoch", "number of registrations"),
        _time("registeredAt", "its last registration"),
        _time("seenAt", "its last registration or acknowledgement"),
    ),
)  # fmt: skip
CONSUMER_GROUP = EntityType(
    "io.headwater.consumerGroup",
    "a consumer group: `LOG/GROUP`, escaped like a consumer's",
    {READ: (), UPDATE: (), DELETE: ()},
    (
        _text("log", "the log"),
        _text("group", "the group's name"),
        Attribute(
            "positions", Kind.MAP, "by partition, like the next four: everything up to this number is processed; "
            "UPDATE moves the given positions of a group without members", is_changeable=True,
        ),
        _map("lags", "events after this position", is_fleeting=True),
        _map("lagsMs", "age of the first event after this position; 0 if none", is_fleeting=True),
        _map("epochs", "the recorded epoch, if it is not 0"),
        _map("owners", "the owner's link, if any"),
        _number("members", "partitions with an owner"),
    ),
)  # fmt: skip
STREAM = EntityType(
    "io.headwater.stream",
    "a stream that reports its position in a log: `LOG/OWNER/STREAM`, escaped like a consumer's",
    _CLOSED,
    (
        _text("log", "the log"),
        _text("owner", "the user who runs it; `spark` if there are no users"),
        _text("stream", "its name"),
        _number("position", "everything up to this number is processed"),
        _number("lag", "events in the log after this position"),
        _number("lagMs", "age of the first event after this position; 0 if none"),
        _time("seenAt", "time of its last report; it is removed seven days later, by DELETE, or by a restart"),
    ),
)
USER = EntityType(
    "io.headwater.user",
    "a user, by its name",
    {CREATE: (), READ: (), UPDATE: (), DELETE: ()},
    (
        Attribute(
            "grants", Kind.STRINGS, "rights as `RIGHT[,RIGHT...]:PATTERN`", is_initial=True,
            is_changeable=True,
        ),
        _text(
            "password", "8 to 1024 characters, stored as a hash", is_initial=True, is_changeable=True,
            is_removable=True, is_secret=True,
        ),
        _flag("hasPassword", "whether it has a password"),
        _number("tokens", "number of tokens"),
        _flag("hasKey", "whether it has a key for signed messages"),
        _text("origin", "`data directory`, or `configuration`: read-only"),
    ),
)  # fmt: skip
TOKEN = EntityType(
    "io.headwater.token",
    "a token of a user: `USER/LABEL`; if it has no label, `unnamed-` and the start of its hash",
    {CREATE: (), READ: (), DELETE: ()},
    (
        _text("user", "the user it belongs to"),
        _text("label", "1 to 64 letters, digits, dots, dashes and underscores"),
        _text("secret", "the token, only in the answer to CREATE; the server stores a hash"),
        _number(
            "lifetimeMs", "from 1,000 to ten years; null: until it is deleted",
            is_initial=True, is_removable=True,
        ),
        _time("createdAt", "when it was created; null if unknown"),
        _time("expiresAt", "when it and its logins expire; null: never"),
        _flag("isOver", "whether it has expired"),
        _text("origin", "`data directory`, or `configuration`: read-only"),
    ),
)  # fmt: skip
SUBSCRIPTION = EntityType(
    "io.headwater.subscription",
    "a subscription to cloud native events, by its id",
    _CLOSED,
    (
        _text("log", "the log of notifications"),
        _text("resource", "the resource address"),
        _text("endpoint", "the webhook's URI; empty if none"),
        _text("dialect", "`v1` or `v2`"),
        _text("owner", "the user who created it"),
        _text("location", "its URI in the HTTP API"),
        _time("createdAt", "when it was created"),
        _text("mode", "`structured` or `binary`"),
        _number("start", "it receives events after this number"),
        _text("standing", "delivery status; `none` without a webhook"),
        _number("delivered", "events delivered since the server started"),
        _number("failures", "consecutive failed attempts"),
        _text("problem", "why the last attempt failed; null if it did not"),
        _time("failingSince", "when the first of these attempts failed; null if none"),
        _text(
            "lastAnswer",
            "result of the last call: `answered 204`, or why there was no answer; null if none",
        ),
        _time("answeredAt", "time of the last call"),
        _number("waiting", "events queued in memory; more may be in the log"),
        _number("position", "the endpoint has received all matching events up to this number; null without a webhook"),
        _number("lag", "events in the log after this position; null without a webhook"),
        _number("deadLetters", "undeliverable events that are kept"),
    ),
)

TYPES: Mapping[str, EntityType] = {
    each.name: each
    for each in (
        MANAGEMENT_NODE, SERVER, HOME_SERVER, LOG, PARTITION, CONNECTION, SESSION, LINK, DURABLE_LINK, CLIENT, READER,
        REFUSAL, CONSUMER, CONSUMER_GROUP, STREAM, USER, TOKEN, SUBSCRIPTION,
    )
}  # fmt: skip
"""All types by name, in the order in which a QUERY without a type answers their entities."""
