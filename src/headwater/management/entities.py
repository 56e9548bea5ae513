"""The manageable entity types, as data: attributes and operations.

`tests.docs.entities` makes the tables of docs/reference/management.md of it. `ports.Entities` lists the entities and
performs the operations.
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
"""The argument of operations that may drop events: the most they may drop. Without it they may drop none."""


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
    rights: str
    """Who may do what, as text."""
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
    Attribute.text("name", "its name, unique within the type"),
    Attribute.text("identity", "its identity, unique among all entities: the last word of its type, a slash, its name"),
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
_SEES_LOG = "READ: to read or manage the log"
_MANAGES_SERVER = "to manage the server (`manage:*`)"

MANAGEMENT_NODE = EntityType(
    NODE_TYPE,
    "the node `$management`; its only entity is named `self`",
    "every authenticated user",
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
    "the server, its disk, and its AMQP counters since the start; its only entity is named `self`",
    f"READ: {_MANAGES_SERVER}",
    _READ_ONLY,
    (
        _text("product", "Headwater"),
        _text("version", "its version"),
        _text("containerId", "its AMQP container id"),
        _time("startedAt", "when its AMQP side started"),
        _number("logs", "number of logs"),
        _text("unready", "why it is not ready; null if it is"),
        Attribute("troubles", Kind.STRINGS, "problems that an operator should look at while the server serves"),
        _number("diskBytes", "size of the data directory's file system; null for logs in memory"),
        _number("diskFreeBytes", "free space for the data"),
        _number("diskReserveBytes", "free space below which appends are refused"),
        _number("connections", "current AMQP connections"),
        _number("connectionsMax", "maximum number of AMQP connections"),
        _number("httpConnectionsMax", "maximum number of HTTP connections"),
        _number("connectionsTaken", "AMQP connections accepted"),
        _number("connectionsRefused", "connections refused: too many, or the server was stopping"),
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
    "a server that shares this server's home, as it last reported; none without a home. Its name is "
    "the server's, with a number if another server was started under that name",
    f"READ: {_MANAGES_SERVER}",
    _READ_ONLY,
    (
        _text("server", "its host and port"),
        _map("addresses", "its addresses for clients, by protocol"),
        _text("role", "`primary`, `following`, `taking over`, `stepping down`, `went back`, `starting` or `stopped`"),
        _number("term", "the term in which it appends; null if it does not"),
        _time("since", "when it became the primary; null if it is not, or the time is unknown"),
        _text("why", "why it became the primary; null as for the time"),
        _number("lag", "events of all logs missing from its copy at its last check; null before the first check"),
        _number("lagMs", "upper bound of how long its copy has been behind; null if it never was complete"),
        _text("ahead", "events that only its copy has, not the home; null if none"),
        _text("version", "its version"),
        _number("heardMs", "time since it last reported to the home"),
        _flag("runs", "whether it reported recently enough to be considered running"),
    ),
)
LOG = EntityType(
    "io.headwater.log",
    "a log. Its name is the log's name",
    f"{_SEES_LOG}; all others: to manage the log",
    {CREATE: (), READ: (), UPDATE: (DROPS_AT_MOST,), DELETE: ()},
    (
        _text("incarnation", "the identity of this log among all logs that had its name"),
        _time("createdAt", "when it was created"),
        _number("partitions", "number of partitions, 1 to 1024; fixed at creation", is_initial=True),
        _text(
            "partitionBy",
            "how events without a group key are assigned to a partition: empty, `source`, `subject` or `tag:KEY`; "
            "fixed at creation",
            is_initial=True,
        ),
        _number(
            "retentionMs", "events older than this may be trimmed", is_initial=True, is_changeable=True,
            is_removable=True,
        ),
        _number(
            "retentionBytes", "the oldest segments above this total size may be trimmed", is_initial=True,
            is_changeable=True, is_removable=True,
        ),
        _flag(
            "retentionUntilAcknowledged", "events that every registered consumer has acknowledged may be trimmed",
            is_initial=True, is_changeable=True,
        ),
        _number("eventBytesMax", "maximum size of an event", is_initial=True, is_changeable=True),
        _number(
            "idHorizon", "event ids are unique among this many newest events; null: among all retained events",
            is_initial=True, is_changeable=True, is_removable=True,
        ),
        _flag("keepsHistory", "append conditions still consider trimmed events", is_initial=True, is_changeable=True),
        _number(
            "consumerAgeMsMax", "a consumer that is silent for this long is unregistered; null: never", is_initial=True,
            is_changeable=True, is_removable=True,
        ),
        _text(
            "defaultStart", "where an AMQP receiver without a position starts: `latest` or `earliest`",
            is_initial=True, is_changeable=True,
        ),
        _number("head", "number of the last event; 0 if there never was one"),
        _number("firstRetained", "number of the first readable event"),
        _number("events", "number of retained events"),
        _number("bytes", "bytes used by events on the disk"),
        _number("allocatedBytes", "bytes used by its files, including preallocated space"),
        _number("appends", "successful appends since the log was opened"),
        _number("eventsAppended", "events of these appends"),
        _number("bytesAppended", "and bytes"),
        _number("commits", "group commits, each with one sync"),
        _number("conditionsFailed", "appends with a failed condition"),
        _number("duplicates", "appends with an id that already existed"),
        _number("refused", "appends refused for other reasons"),
        _number("eventsRead", "events read"),
        _number("queuedRequests", "appends waiting to be committed"),
        _number("queuedBytes", "bytes of waiting appends"),
        _number("segments", "number of segments"),
        _text("problem", "why it cannot be opened; null if it can be, and then all attributes above are set"),
    ),
)  # fmt: skip
PARTITION = EntityType(
    "io.headwater.partition",
    "a partition of a log. Its name is `LOG/NUMBER`",
    _SEES_LOG,
    _READ_ONLY,
    (
        _text("log", "the log"),
        _number("number", "from 0 on"),
        _number("events", "number of its retained events"),
        _number("first", "number of its first retained event; null if none"),
        _number("last", "number of its last event; null if none"),
        _time("firstAt", "when the first was recorded"),
        _time("lastAt", "when the last was recorded"),
    ),
)
CONNECTION = EntityType(
    "io.headwater.connection",
    "an AMQP connection. Its name is a number, counted from 1",
    f"all: {_MANAGES_SERVER}",
    _CLOSED,
    (
        _text("containerId", "the peer's container id"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port"),
        _text("user", "the authenticated user; empty if no users are configured"),
        _text("mechanism", "the SASL mechanism; empty if there was no SASL"),
        _text("tls", "the TLS version; null without TLS"),
        _time("openedAt", "when it was accepted"),
        _text(
            "stage",
            "what the server expects next: `a protocol header`, `SASL frames`, `an open`, `frames` or `nothing`",
        ),
        _number("sessions", "current sessions"),
        _number("links", "current links"),
        _number("bytesReceived", "bytes received from the peer"),
        _number("bytesSent", "bytes sent to the peer"),
        _number("bytesHeld", "bytes received from its producers that are not durable yet"),
        _number("frameBytesMax", "the peer's maximum frame size"),
        _number("idleTimeoutMs", "the peer's idle time-out; null if none"),
        _text("product", "product of the peer, as it says"),
        _map("properties", "strings and numbers of the peer's open properties"),
    ),
)
SESSION = EntityType(
    "io.headwater.session",
    "a session of a connection. Its name is `CONNECTION/SESSION`, both counted from 1",
    f"all: {_MANAGES_SERVER}",
    _CLOSED,
    (
        _text("connection", "the connection's name"),
        _number("channel", "the server's outgoing channel"),
        _number("links", "current links"),
        _number("sendable", "transfers that the peer's window currently allows"),
    ),
)
LINK = EntityType(
    "io.headwater.link",
    "a link of a session. Its name is `CONNECTION/SESSION/LINK`, all counted from 1",
    f"READ: {_MANAGES_SERVER}, or to be its user; DELETE: to manage the server",
    _CLOSED,
    (
        _text("connection", "the connection's name"),
        _text("session", "the session's name"),
        _text("linkName", "the link's name, chosen by the peer"),
        _text("containerId", "the peer's container id"),
        _text("role", "the peer's role: `sender` or `receiver`"),
        _text("address", "the target to which the peer sends, or the source from which it receives"),
        _text("log", "the log that it uses; null if none"),
        _number("handle", "our handle"),
        _number("credit", "remaining link credit"),
        _number("deliveries", "messages sent or received since the attach"),
        _number("unsettled", "unsettled messages sent to a receiver; null for a sender"),
        _number("unsettledMax", "receivers of a log: maximum number of unsettled messages"),
        _time("attachedAt", "when it was attached"),
        _time("messageAt", "time of the last message; null if none"),
        _text(
            "waitsFor",
            "what the next message is waiting for. Receivers of a log: `outcomes` (unsettled messages), `credit`, "
            "`window` (of the session), `reading` (the peer does not read), `events` (it is up to date) or "
            "`partition` (of its consumer group). Producers: `messages`, or `the log` (busy writing). "
            "null: nothing",
        ),
        _time(
            "waitsSince",
            "since when, at the earliest: the time of the last message, or of the last outcome for `outcomes`",
        ),
        _flag("isAttached", "whether both sides have attached and neither has detached"),
        _number(
            "partition",
            "receivers: the partition that it is bound to; null: all, or all that its group assigned",
        ),
        _text("group", "receivers: its consumer group; null if none"),
        _number("epoch", "members of a consumer group: the epoch under which it owns its partition"),
        _map("filter", "receivers: the filters in effect, as text"),
        _number("position", "receivers: everything up to this number is settled; null without a partition"),
        _number("lag", "receivers: number of events after this position, in its partition if it reads only one"),
        _number("lagMs", "receivers: age of the first event after this position; 0 if none"),
        _number("sentAgain", "receivers: messages that it released and that were sent again"),
    ),
)
DURABLE_LINK = EntityType(
    "io.headwater.durableLink",
    "a durable receiver of a log, attached or not. Its name is `LOG/CONTAINER/LINK`, escaped like a consumer's",
    f"all: {_MANAGES_SERVER}",
    _CLOSED,
    (
        _text("log", "the log"),
        _text("container", "the peer's container id; prefixed with its user and `@` if users are configured"),
        _text("linkName", "the link's name, chosen by the peer"),
        _number("position", "everything up to this number is processed"),
        _number("lag", "number of events in the log after this position"),
        _number("lagMs", "age of the first event after this position; 0 if none"),
        _text("expiryPolicy", "when it expires: `never`, or after `connection-close`, `session-end`, `link-detach`"),
        _time("expiresAt", "when it expires; null: at no fixed time"),
        _time("detachedAt", "when it lost its link; null while it has one"),
        _flag("isDurable", "whether it survives a restart of the server"),
        _flag("isAttached", "whether it currently has a link; then it cannot be deleted"),
    ),
)
CLIENT = EntityType(
    "io.headwater.client",
    "a client of a protocol other than AMQP. Its name is `http/ADDRESS:PORT`, `websocket/ADDRESS:PORT`, or "
    "`flight/USER@ADDRESS`",
    f"READ: {_MANAGES_SERVER}, or to be its user; DELETE: to manage the server",
    _CLOSED,
    (
        _text("protocol", "`http`, `websocket` or `flight`"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port; null for Flight, whose connections are not distinguished"),
        _text("user", "the user of the last request; empty if it had none or no users are configured"),
        _time("openedAt", "when it was accepted; for Flight, time of its first request"),
        _time("seenAt", "for Flight, time of its last request, after which it is listed for an hour; null for others"),
        _text("tls", "the TLS version; null without TLS, and for Flight"),
        _text("request", "method and path of the last request; null if none, and for Flight"),
        _flag(
            "isAnswering", "whether that request is still being answered, for example a subscription; null for Flight"
        ),
    ),
)
READER = EntityType(
    "io.headwater.reader",
    "a reader of a log over a protocol other than AMQP: an HTTP subscription, a FutoIn push, or an Arrow Flight "
    "stream that lasts longer than a second. Its name is a number, counted from 1",
    f"READ: {_MANAGES_SERVER}, or to be its user; DELETE: to manage the server",
    _CLOSED,
    (
        _text("protocol", "`http`, `futoin` or `flight`"),
        _text("log", "the log"),
        _text("user", "the user; empty if no users are configured"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port; null if none"),
        _text("wants", "the query or the event types, as given; null: all"),
        _text("component", "FutoIn: the consumer's component, `LIVE` if it is not registered"),
        _number("partition", "the only partition that it reads; null: all"),
        _time("startedAt", "when it started"),
        _number("events", "number of events sent to it"),
        _number("position", "it was sent all matching events up to this number; null for Flight, as are both lags"),
        _number("lag", "number of events in the log after this position"),
        _number("lagMs", "age of the first event after this position; 0 if none"),
        _time("sentAt", "when events were last sent to it; null: never"),
        _text(
            "waitsFor",
            "what the next event is waiting for: `reading` (the peer does not read), `answers` (to FutoIn "
            "pushes) or `events`",
        ),
        _time("waitsSince", "since when"),
    ),
)
REFUSAL = EntityType(
    "io.headwater.refusal",
    "recent refusals of connections, logins or accesses of one peer and one user for one reason. Its name is a "
    "number, counted from 1. The newest 1,000 are kept for an hour, 16 per peer",
    f"READ: {_MANAGES_SERVER}",
    _READ_ONLY,
    (
        _text("kind", "`connection`, `login` or `access`"),
        _text(
            "reason",
            "of connections: `limit` or `stopping`; of logins: `missing`, `wrong`, `hasty`, `unchecked`; of accesses: "
            "`forbidden`",
        ),
        _text("protocol", "of a connection: `amqp` or `http`; null for others"),
        _text("user", "the given name, or the user who lacks a right; null above the number of distinguished users"),
        _text("peer", "the peer's address; null for accesses"),
        _text("right", "accesses: the right that the user last lacked"),
        _text("log", "accesses: on this log, or `*`"),
        _number("count", "how often"),
        _time("firstAt", "when first"),
        _time("lastAt", "when last"),
    ),
)
CONSUMER = EntityType(
    "io.headwater.consumer",
    "a registered consumer of a log, which holds back trimming. Its name is `LOG/OWNER/COMPONENT`, with `%2F` for a "
    "slash within a part and `%25` for a percent sign",
    f"{_SEES_LOG}; all others: to manage the log",
    {CREATE: (DROPS_AT_MOST,), READ: (), UPDATE: (DROPS_AT_MOST,), DELETE: (DROPS_AT_MOST,)},
    (
        _text("log", "the log"),
        _text("owner", "a user, a container, `spark`"),
        _text("component", "name of the consumer, unique per owner"),
        _number(
            "acknowledged", "everything up to this number is acknowledged; UPDATE moves it; CREATE starts at "
            "the head if it is not given", is_initial=True, is_changeable=True,
        ),
        _number("lag", "number of events in the log after this position", is_fleeting=True),
        _number(
            "lagMs", "age of the first event that it has not acknowledged; 0 if none", is_fleeting=True
        ),
        _number("epoch", "number of registrations"),
        _time("registeredAt", "time of its last registration"),
        _time("seenAt", "time of its last registration or acknowledgement"),
    ),
)  # fmt: skip
CONSUMER_GROUP = EntityType(
    "io.headwater.consumerGroup",
    "a consumer group of a log, as created by AMQP receivers. Its name is `LOG/GROUP`, escaped like a consumer's",
    f"{_SEES_LOG}; all others: to manage the log",
    {READ: (), UPDATE: (), DELETE: ()},
    (
        _text("log", "the log"),
        _text("group", "the group's name"),
        Attribute(
            "positions", Kind.MAP, "by partition: everything up to this number is processed; UPDATE moves the given "
            "partitions of a group without members", is_changeable=True,
        ),
        _map("lags", "by partition: number of events after this position", is_fleeting=True),
        _map("lagsMs", "by partition: age of the first event after this position; 0 if none", is_fleeting=True),
        _map("epochs", "by partition: the recorded epoch, if it is not 0"),
        _map("owners", "by partition: the name of the owner's link, if it has an owner"),
        _number("members", "number of partitions with an owner"),
    ),
)  # fmt: skip
STREAM = EntityType(
    "io.headwater.stream",
    "a stream that reports its position in a log, for example a Spark stream with a `streamName`. Its name is "
    "`LOG/OWNER/STREAM`, escaped like a consumer's",
    f"{_SEES_LOG}; DELETE: to manage the log",
    _CLOSED,
    (
        _text("log", "the log"),
        _text("owner", "the user who runs it; `spark` if no users are configured"),
        _text("stream", "its name"),
        _number("position", "everything up to this number is processed, as it last reported"),
        _number("lag", "number of events in the log after this position"),
        _number("lagMs", "age of the first event after this position; 0 if none"),
        _time("seenAt", "time of its last report; it is removed seven days later, by DELETE, or by a restart"),
    ),
)
USER = EntityType(
    "io.headwater.user",
    "a user. Its name is the user's name",
    f"all: {_MANAGES_SERVER}",
    {CREATE: (), READ: (), UPDATE: (), DELETE: ()},
    (
        Attribute(
            "grants", Kind.STRINGS, "its grants, as `RIGHT[,RIGHT...]:PATTERN`", is_initial=True,
            is_changeable=True,
        ),
        _text(
            "password", "8 to 1024 characters; only a hash is kept", is_initial=True, is_changeable=True,
            is_removable=True, is_secret=True,
        ),
        _flag("hasPassword", "whether it has a password"),
        _number("tokens", "number of tokens"),
        _flag("hasKey", "whether it has a key for signed messages"),
        _text("origin", "`data directory`, or `configuration`: such a user is read-only"),
    ),
)  # fmt: skip
TOKEN = EntityType(
    "io.headwater.token",
    "a token with which a program logs in as a user. Its name is `USER/LABEL`; without a label it is "
    "`unnamed-` and the start of its hash",
    f"all: {_MANAGES_SERVER}",
    {CREATE: (), READ: (), DELETE: ()},
    (
        _text("user", "the user it belongs to"),
        _text("label", "its label: 1 to 64 letters, digits, dots, dashes and underscores"),
        _text("secret", "the token: only in the answer to CREATE; the server keeps only a hash"),
        _number(
            "lifetimeMs", "its lifetime, from 1,000 to ten years; null: until it is deleted",
            is_initial=True, is_removable=True,
        ),
        _time("createdAt", "when it was created; null if unknown"),
        _time("expiresAt", "when it expires, which also ends its logins; null: never"),
        _flag("isOver", "whether it has expired"),
        _text("origin", "`data directory`, or `configuration`: such a token is read-only"),
    ),
)  # fmt: skip
SUBSCRIPTION = EntityType(
    "io.headwater.subscription",
    "a subscription to cloud native events. Its name is its id",
    "READ: to read the log of notifications; DELETE: to have made it, or to manage that log",
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
        _number("start", "it receives events above this number"),
        _text("standing", "delivery status; `none` if nothing is delivered"),
        _number("delivered", "events delivered since the server started"),
        _number("failures", "consecutive failed attempts"),
        _text("problem", "reason of the last failed attempt; null if none"),
        _time("failingSince", "time of the first failed attempt; null if none"),
        _text(
            "lastAnswer",
            "result of the last call: `answered 204`, or why there was no answer; null before the first call",
        ),
        _time("answeredAt", "and when"),
        _number("waiting", "events queued in memory for the endpoint; more may be in the log"),
        _number("position", "its endpoint has received all matching events up to this number; null if nothing is sent"),
        _number("lag", "number of events in the log after this position; null if nothing is sent"),
        _number("deadLetters", "events that could not be delivered, kept for another attempt"),
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
