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
    Attribute.text("name", "what it is called among those of its type"),
    Attribute.text("identity", "what it is called among all: the last word of its type, a slash, its name"),
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
    "the node `$management` itself; its one entity is called `self`",
    "everybody who is logged in",
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
    "the server, its disk, and what its AMQP side counts since it started; its one entity is called `self`",
    f"READ: {_MANAGES_SERVER}",
    _READ_ONLY,
    (
        _text("product", "Headwater"),
        _text("version", "its version"),
        _text("containerId", "what it calls itself in AMQP"),
        _time("startedAt", "when AMQP was started"),
        _number("logs", "how many logs there are"),
        _text("unready", "why it should get no work at the moment; null if it should"),
        Attribute("troubles", Kind.STRINGS, "what an operator should look at, though the server serves"),
        _number("diskBytes", "how large the file system of the data is; null where logs are in memory"),
        _number("diskFreeBytes", "what of it is free for the data"),
        _number("diskReserveBytes", "what must be free; below that, appends are refused"),
        _number("connections", "AMQP connections at present"),
        _number("connectionsMax", "so many AMQP connections may be open"),
        _number("httpConnectionsMax", "so many HTTP connections may be open"),
        _number("connectionsTaken", "AMQP connections accepted"),
        _number("connectionsRefused", "refused: too many, or the server was stopping"),
        _number("faults", "connections that ended because the peer broke the protocol"),
        _number("linksAttached", "attaches that were answered with a link"),
        _number("linksRefused", "attaches that were refused"),
        _number("messagesReceived", "messages of producers"),
        _number("messagesRejected", "those of them that were rejected"),
        _number("messagesSent", "messages to consumers"),
        _number("messagesSentAgain", "those of them that were sent again after their receiver released them"),
    ),
)
HOME_SERVER = EntityType(
    "io.headwater.homeServer",
    "a server of the home that this one shares, as it told the home last; without a home there is none. Its name is "
    "the server's, with a number where another was started under it",
    f"READ: {_MANAGES_SERVER}",
    _READ_ONLY,
    (
        _text("server", "what it calls itself: its host and its port"),
        _map("addresses", "where its clients reach it, by protocol"),
        _text("role", "`primary`, `following`, `taking over`, `stepping down`, `went back`, `starting` or `stopped`"),
        _number("term", "the term in which it appends; null: it does not"),
        _time("since", "when it became the primary; null: it is not, or that is not known"),
        _text("why", "why it became the primary; null as above"),
        _number("lag", "so many numbers of all logs its copy lacked at its last look; null: it has not looked"),
        _number("lagMs", "for so long at most its copy lacks something; null: it never had all"),
        _text("ahead", "what its copy has and the home has not; null if there is nothing"),
        _text("version", "its version"),
        _number("heardMs", "for how long the home heard nothing of it"),
        _flag("runs", "whether that is so short that it may be taken to run"),
    ),
)
LOG = EntityType(
    "io.headwater.log",
    "a log. Its name is the log's",
    f"{_SEES_LOG}; all others: to manage the log",
    {CREATE: (), READ: (), UPDATE: (DROPS_AT_MOST,), DELETE: ()},
    (
        _text("incarnation", "the identity of this log under its name"),
        _time("createdAt", "when it was made"),
        _number("partitions", "how many it has; 1 to 1024, fixed at creation", is_initial=True),
        _text(
            "partitionBy",
            "how events without group key find their partition: empty, `source`, `subject` or `tag:KEY`; fixed at "
            "creation",
            is_initial=True,
        ),
        _number(
            "retentionMs", "events older than that may be trimmed", is_initial=True, is_changeable=True,
            is_removable=True,
        ),
        _number(
            "retentionBytes", "the oldest segments over that total may be trimmed", is_initial=True,
            is_changeable=True, is_removable=True,
        ),
        _flag(
            "retentionUntilAcknowledged", "what every registered consumer has acknowledged may be trimmed",
            is_initial=True, is_changeable=True,
        ),
        _number("eventBytesMax", "the largest event taken", is_initial=True, is_changeable=True),
        _number(
            "idHorizon", "ids are unique over so many newest events; null: over all that are retained",
            is_initial=True, is_changeable=True, is_removable=True,
        ),
        _flag("keepsHistory", "conditions stay exact over trimmed events", is_initial=True, is_changeable=True),
        _number(
            "consumerAgeMsMax", "a consumer not heard of for so long is unregistered; null: never", is_initial=True,
            is_changeable=True, is_removable=True,
        ),
        _text(
            "defaultStart", "where an AMQP receiver begins that names no position: `latest` or `earliest`",
            is_initial=True, is_changeable=True,
        ),
        _number("head", "the number of the last event; 0 if there never was one"),
        _number("firstRetained", "the number from which events can be read"),
        _number("events", "how many events are retained"),
        _number("bytes", "what they take on the disk"),
        _number("allocatedBytes", "what its files take there, with what was allocated ahead"),
        _number("appends", "since the log was opened: appends that succeeded"),
        _number("eventsAppended", "and their events"),
        _number("bytesAppended", "and bytes"),
        _number("commits", "group commits, each under one sync"),
        _number("conditionsFailed", "appends whose condition failed"),
        _number("duplicates", "appends with an id that was there"),
        _number("refused", "appends refused for other reasons"),
        _number("eventsRead", "events read"),
        _number("queuedRequests", "appends that wait at present"),
        _number("queuedBytes", "and their bytes"),
        _number("segments", "segments at present"),
        _text("problem", "why it cannot be opened; null if it can: then all above are there"),
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
        _number("events", "how many of its events are retained"),
        _number("first", "the number of the first of them; null if there is none"),
        _number("last", "the number of the last; null if there is none"),
        _time("firstAt", "when the first was recorded"),
        _time("lastAt", "when the last was recorded"),
    ),
)
CONNECTION = EntityType(
    "io.headwater.connection",
    "an AMQP connection. Its name is a number that counts from 1",
    f"all: {_MANAGES_SERVER}",
    _CLOSED,
    (
        _text("containerId", "what the peer calls itself"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port"),
        _text("user", "the authenticated user; empty where no user is configured"),
        _text("mechanism", "the SASL mechanism; empty if there was no SASL"),
        _text("tls", "the version of TLS; null where there is none"),
        _time("openedAt", "when it was accepted"),
        _text(
            "stage",
            "what is expected of the peer: `a protocol header`, `SASL frames`, `an open`, `frames` or `nothing`",
        ),
        _number("sessions", "sessions at present"),
        _number("links", "links at present"),
        _number("bytesReceived", "what the peer has sent"),
        _number("bytesSent", "what was sent to it"),
        _number("bytesHeld", "what its producers have sent and is not on the disk yet"),
        _number("frameBytesMax", "the largest frame that the peer takes"),
        _number("idleTimeoutMs", "how often the peer wants to hear something; null: it does not say"),
        _text("product", "what the peer says that it is"),
        _map("properties", "the texts and numbers of the peer's open properties"),
    ),
)
SESSION = EntityType(
    "io.headwater.session",
    "a session of a connection. Its name is `CONNECTION/SESSION`, both counted from 1",
    f"all: {_MANAGES_SERVER}",
    _CLOSED,
    (
        _text("connection", "the connection's name"),
        _number("channel", "the channel on which we send"),
        _number("links", "links at present"),
        _number("sendable", "transfers that the peer's window allows at present"),
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
        _text("linkName", "what the peer calls it"),
        _text("containerId", "what the peer calls itself"),
        _text("role", "what the peer is: `sender` or `receiver`"),
        _text("address", "of the target to which the peer sends, or of the source from which it receives"),
        _text("log", "the log that it needs; null if none"),
        _number("handle", "our handle"),
        _number("credit", "deliveries that may still be sent"),
        _number("deliveries", "messages sent or received since it was attached"),
        _number("unsettled", "messages that were sent and wait for their outcome; null: the peer sends"),
        _number("unsettledMax", "of a receiver of a log: so many may wait for their outcome"),
        _time("attachedAt", "when it was attached"),
        _time("messageAt", "when a message last went over it; null: none has"),
        _text(
            "waitsFor",
            "what must come before the next message: from a receiver of a log `outcomes` (it settles nothing), "
            "`credit` (it asks for nothing), `window` (of its session) or `reading` (it reads nothing), for it "
            "`events` (it has all there is), `partition` (its consumer group has none for it); from a producer "
            "`messages`, for it `the log` (which has much to write); null: none",
        ),
        _time("waitsSince", "since when at the earliest: when a message or, for `outcomes`, an outcome last came"),
        _flag("isAttached", "whether both sides have attached and neither has detached"),
        _number(
            "partition",
            "of a receiver: the partition that it is bound to; null: all, or all that its group has given it",
        ),
        _text("group", "of a receiver: its consumer group; null: none"),
        _number("epoch", "of a member of a consumer group: the epoch under which it has its partition"),
        _map("filter", "of a receiver: the filters in effect, as texts"),
        _number("position", "of a receiver: everything up to this number is done with; null: it has no partition"),
        _number("lag", "of a receiver: how many events wait for it, in its partition if it reads only one"),
        _number("lagMs", "of a receiver: how old the first event after it is; 0 if there is none"),
        _number("sentAgain", "of a receiver: messages that it released, and that were sent again"),
    ),
)
DURABLE_LINK = EntityType(
    "io.headwater.durableLink",
    "a receiver of a log whose position outlives its link, attached or not. Its name is `LOG/CONTAINER/LINK`, written "
    "like a consumer's",
    f"all: {_MANAGES_SERVER}",
    _CLOSED,
    (
        _text("log", "the log"),
        _text("container", "what the peer calls itself; with its user and `@` before it, where users are known"),
        _text("linkName", "what the peer calls the link"),
        _number("position", "everything up to this number is done with"),
        _number("lag", "how many events the log has after it"),
        _number("lagMs", "how old the first event after it is; 0 if there is none"),
        _text(
            "expiryPolicy", "when it is forgotten: `never`, or after `connection-close`, `session-end`, `link-detach`"
        ),
        _time("expiresAt", "when it is forgotten; null: at no set time"),
        _time("detachedAt", "since when it has no link; null while it has one"),
        _flag("isDurable", "whether it outlives the server too"),
        _flag("isAttached", "whether it has a link at present; then it cannot be deleted"),
    ),
)
CLIENT = EntityType(
    "io.headwater.client",
    "a client that does not speak AMQP. Its name is `http/ADDRESS:PORT`, `websocket/ADDRESS:PORT`, or "
    "`flight/USER@ADDRESS`",
    f"READ: {_MANAGES_SERVER}, or to be its user; DELETE: to manage the server",
    _CLOSED,
    (
        _text("protocol", "`http`, `websocket` or `flight`"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port; null for Flight, whose connections are not told apart"),
        _text("user", "the user of the last request; empty if it has none, or none is configured"),
        _time("openedAt", "when it was accepted; for Flight, when it was first heard of"),
        _time("seenAt", "for Flight, when it was last heard of: it is forgotten an hour later; null for others"),
        _text("tls", "the version of TLS; null where there is none, and for Flight"),
        _text("request", "method and path of the last request; null if there was none, and for Flight"),
        _flag("isAnswering", "whether that request is not fully answered: a subscription, say; null for Flight"),
    ),
)
READER = EntityType(
    "io.headwater.reader",
    "somebody who is being sent the events of a log by another protocol than AMQP: a subscription over HTTP, a push of "
    "FutoIn, or a stream of Arrow Flight that lasts for more than a second. Its name is a number that counts from 1",
    f"READ: {_MANAGES_SERVER}, or to be its user; DELETE: to manage the server",
    _CLOSED,
    (
        _text("protocol", "`http`, `futoin` or `flight`"),
        _text("log", "the log"),
        _text("user", "the user; empty where none is configured"),
        _text("peer", "the peer's address"),
        _number("port", "the peer's port; null where it has none"),
        _text("wants", "the query, or the types of events, as they were given; null: all"),
        _text("component", "of FutoIn: the consumer's component, `LIVE` for one that is not registered"),
        _number("partition", "the only partition that it reads; null: all"),
        _time("startedAt", "when it began"),
        _number("events", "how many it was sent since"),
        _number("position", "up to this number it was sent what it wants; null, with both lags, for Flight"),
        _number("lag", "how many events the log has after it"),
        _number("lagMs", "how old the first event after it is; 0 if there is none"),
        _time("sentAt", "when it was last sent events; null: not yet"),
        _text(
            "waitsFor",
            "what must come before it is sent more: `reading` (it takes nothing of what was sent), `answers` (to "
            "pushes of FutoIn), or `events`",
        ),
        _time("waitsSince", "since when"),
    ),
)
REFUSAL = EntityType(
    "io.headwater.refusal",
    "what was refused lately: connections, logins, accesses, of one peer and one user, for one reason. Its name is a "
    "number that counts from 1. The newest 1,000 are kept, of one peer 16, and an hour long",
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
        _text("user", "the name that was given, or the user who lacks a right; null: of more than are distinguished"),
        _text("peer", "the peer's address; null for accesses"),
        _text("right", "of an access: the right that the user lacked last"),
        _text("log", "and on which log, or `*`"),
        _number("count", "how often"),
        _time("firstAt", "when first"),
        _time("lastAt", "when last"),
    ),
)
CONSUMER = EntityType(
    "io.headwater.consumer",
    "a registered consumer of a log, which holds trimming back. Its name is `LOG/OWNER/COMPONENT`, with `%2F` for a "
    "slash within a part, and `%25` for a percent sign",
    f"{_SEES_LOG}; all others: to manage the log",
    {CREATE: (DROPS_AT_MOST,), READ: (), UPDATE: (DROPS_AT_MOST,), DELETE: (DROPS_AT_MOST,)},
    (
        _text("log", "the log"),
        _text("owner", "a user, a container, `spark`"),
        _text("component", "which of the owner's consumers"),
        _number(
            "acknowledged", "everything up to this number is done with; UPDATE moves it; CREATE begins at "
            "the head if it is not given", is_initial=True, is_changeable=True,
        ),
        _number("lag", "how many events the log has after it", is_fleeting=True),
        _number(
            "lagMs", "how old the first event is that it has not acknowledged; 0 if there is none", is_fleeting=True
        ),
        _number("epoch", "how often it has registered"),
        _time("registeredAt", "when it last registered anew"),
        _time("seenAt", "when it last registered or acknowledged"),
    ),
)  # fmt: skip
CONSUMER_GROUP = EntityType(
    "io.headwater.consumerGroup",
    "a consumer group of a log, as AMQP receivers make them. Its name is `LOG/GROUP`, written like a consumer's",
    f"{_SEES_LOG}; all others: to manage the log",
    {READ: (), UPDATE: (), DELETE: ()},
    (
        _text("log", "the log"),
        _text("group", "the group's name"),
        Attribute(
            "positions", Kind.MAP, "by partition: everything up to this number is done with; UPDATE moves the given "
            "partitions of a group without members", is_changeable=True,
        ),
        _map("lags", "by partition: how many of its events wait", is_fleeting=True),
        _map("lagsMs", "by partition: how old its first event is that waits; 0 if there is none", is_fleeting=True),
        _map("epochs", "by partition: the recorded epoch, where it is not 0"),
        _map("owners", "by partition: the name of the owner's link, where it has an owner"),
        _number("members", "how many owners there are"),
    ),
)  # fmt: skip
STREAM = EntityType(
    "io.headwater.stream",
    "a stream that tells how far it has come in a log, as those of Spark that have a `streamName` do. Its name is "
    "`LOG/OWNER/STREAM`, written like a consumer's",
    f"{_SEES_LOG}; DELETE: to manage the log",
    _CLOSED,
    (
        _text("log", "the log"),
        _text("owner", "the user who runs it; `spark` where no user is configured"),
        _text("stream", "what it calls itself"),
        _number("position", "everything up to this number is done with, as it said last"),
        _number("lag", "how many events the log has after it"),
        _number("lagMs", "how old the first event after it is; 0 if there is none"),
        _time("seenAt", "when it said so; seven days after its last word it is forgotten, as by DELETE and a restart"),
    ),
)
USER = EntityType(
    "io.headwater.user",
    "a user. Its name is the user's",
    f"all: {_MANAGES_SERVER}",
    {CREATE: (), READ: (), UPDATE: (), DELETE: ()},
    (
        Attribute(
            "grants", Kind.STRINGS, "what it may do, as `RIGHT[,RIGHT...]:PATTERN`", is_initial=True,
            is_changeable=True,
        ),
        _text(
            "password", "8 to 1024 characters; only a hash is kept", is_initial=True, is_changeable=True,
            is_removable=True, is_secret=True,
        ),
        _flag("hasPassword", "whether it has a password"),
        _number("tokens", "how many tokens it has"),
        _flag("hasKey", "whether it has a key for signed messages"),
        _text("origin", "`data directory`, or `configuration`: such a user can only be read"),
    ),
)  # fmt: skip
TOKEN = EntityType(
    "io.headwater.token",
    "a token of a user, by which a program logs in. Its name is `USER/LABEL`; the label of one that has none is "
    "`unnamed-` and the beginning of its hash",
    f"all: {_MANAGES_SERVER}",
    {CREATE: (), READ: (), DELETE: ()},
    (
        _text("user", "whose it is"),
        _text("label", "what it is called: 1 to 64 letters, digits, dots, dashes and underscores"),
        _text("secret", "the token itself: in the answer to CREATE, and never again; only a hash is kept"),
        _number(
            "lifetimeMs", "for how long it is a login, from 1,000 to ten years; null: until it is deleted",
            is_initial=True, is_removable=True,
        ),
        _time("createdAt", "when it was made; null: not known"),
        _time("expiresAt", "when it is a login no more, and those that it was end; null: never"),
        _flag("isOver", "whether that has come"),
        _text("origin", "`data directory`, or `configuration`: such a token can only be read"),
    ),
)  # fmt: skip
SUBSCRIPTION = EntityType(
    "io.headwater.subscription",
    "a subscription of cloud native events. Its name is its id",
    "READ: to read the log of notifications; DELETE: to have made it, or to manage that log",
    _CLOSED,
    (
        _text("log", "the log of notifications"),
        _text("resource", "the resource address"),
        _text("endpoint", "the webhook's URI; empty if it has none"),
        _text("dialect", "`v1` or `v2`"),
        _text("owner", "who made it"),
        _text("location", "the URI by which HTTP shows it"),
        _time("createdAt", "when it was made"),
        _text("mode", "`structured` or `binary`"),
        _number("start", "events above this number are its own"),
        _text("standing", "how delivery stands; `none` if nothing is delivered"),
        _number("delivered", "events delivered since the server started"),
        _number("failures", "tries that failed in a row"),
        _text("problem", "what became of the last of these; null if there is none"),
        _time("failingSince", "when the first of these failed; null if none did"),
        _text("lastAnswer", "what became of the last call: `answered 204`, or why there was no answer; null: none yet"),
        _time("answeredAt", "and when"),
        _number("waiting", "events in memory for the endpoint; more may wait in the log"),
        _number("position", "up to this number its endpoint is done with all that concerns it; null: nothing is sent"),
        _number("lag", "how many events the log has after it; null: nothing is sent"),
        _number("deadLetters", "events given up and kept for another try"),
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
