"""Registered reliable consumers and their acknowledged positions. Only registered consumers hold trimming back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from .actor import acting
from .errors import (
    ConsumerFenced,
    ConsumerNotFound,
    EventLogError,
    InvalidInput,
    InvalidPosition,
    OutcomeUnknown,
    StorageUnavailable,
)
from .limits import _UNFIT, show
from .state import StateStore
from .watch.bus import Bus
from .watch.notification_types import NotificationType

CONSUMER_CHARS_MAX = 256


@dataclass(frozen=True, slots=True)
class Consumer:
    """One registered consumer of one log, keyed by (owner, component).

    A FutoIn user and component, an AMQP container and link name, or `spark` and `archiver`.
    """

    owner: str
    component: str
    acknowledged: int
    """Every event up to this number is processed. Only an explicit reset moves it back."""
    epoch: int
    """Each registration increases it; an acknowledgement with an older epoch is fenced off."""
    registered_at: int
    """ms since 1970 UTC."""
    seen_at: int
    """When it last registered or acknowledged, ms since 1970 UTC."""


class Acknowledgement(NamedTuple):
    """A consumer's acknowledgement."""

    owner: str
    component: str
    sequence_number: int
    """Every event up to this number is processed."""
    epoch: int | None = None


def check_consumer_key(owner: str, component: str) -> None:
    """Raises InvalidInput unless both are 1 to 256 characters without control characters."""
    for name, value in (("owner", owner), ("component", component)):
        if not isinstance(value, str) or not 1 <= len(value) <= CONSUMER_CHARS_MAX or _UNFIT.search(value):
            raise InvalidInput(f"expected 1 to {CONSUMER_CHARS_MAX} characters, got {show(value)}", name)


class ConsumerRegistry:
    """Consumers of one incarnation of a log. Safe to call from any thread."""

    def __init__(
        self,
        state: StateStore,
        incarnation: str,
        head: Callable[[], int],
        clock: Callable[[], int],
        log: str = "",
        bus: Bus | None = None,
    ) -> None:
        """`bus` is notified of registrations and unregistrations, with the log's name."""
        self._state, self._head, self._clock = state, head, clock
        self._log, self._bus = log, bus or Bus()
        self._kind = f"consumer/{incarnation}"
        self._lock = threading.Lock()
        stored = stored_consumers(state, incarnation)
        self._consumers = {(consumer.owner, consumer.component): consumer for consumer in stored}

    def reload(self, incarnation: str) -> None:
        """Another server has changed the consumers: read them again from the state."""
        with self._lock:
            stored = stored_consumers(self._state, incarnation)
            self._consumers = {(consumer.owner, consumer.component): consumer for consumer in stored}

    def register(self, owner: str, component: str, after: int | None) -> Consumer:
        """See EventLog.register_consumer."""
        check_consumer_key(owner, component)
        with self._lock:
            now = self._clock()
            known = self._consumers.get((owner, component))
            if known is not None:
                consumer = self._store(replace(known, epoch=known.epoch + 1, seen_at=now))
            else:
                consumer = self._store(self._new(owner, component, after, now))
            self._notify(NotificationType.CONSUMER_REGISTERED, consumer, epoch=consumer.epoch)
            return consumer

    def acknowledge_all(self, given: Sequence[Acknowledgement]) -> list[Consumer | EventLogError]:
        """See LocalLog.acknowledge_all."""
        outcomes: list[Consumer | EventLogError] = []
        refusal: EventLogError | None = None
        for each in given:
            outcome = refusal or self._acknowledge(each)
            outcomes.append(outcome)
            if isinstance(outcome, StorageUnavailable | OutcomeUnknown):
                refusal = outcome  # the next one would wait equally long for the same reason
        if any(isinstance(each, Consumer) for each in outcomes):
            self._state.flush()
        return outcomes

    def _acknowledge(self, given: Acknowledgement) -> Consumer | EventLogError:
        owner, component, sequence_number, epoch = given
        try:
            with self._lock:
                known = self._known(owner, component)
                if epoch is not None and epoch != known.epoch:
                    raise ConsumerFenced(owner, component, epoch, known.epoch)
                moved = max(known.acknowledged, self._checked(sequence_number, self._head(), "sequence_number"))
                return self._store(replace(known, acknowledged=moved, seen_at=self._clock()), is_durable=False)
        except EventLogError as error:  # only this one failed
            return error

    def reset(self, owner: str, component: str, after: int) -> Consumer:
        """See EventLog.reset_consumer."""
        with self._lock:
            known = self._known(owner, component)
            position = self._checked(after, self._head(), "after")
            moved = self._store(replace(known, acknowledged=position, seen_at=self._clock()))
            self._notify(NotificationType.CONSUMER_MOVED, moved, previous=known.acknowledged)
            return moved

    def registered(self, owner: str, component: str, after: int | None) -> Consumer:
        """The consumer that `register` would store, except for its epoch. Raises InvalidInput, InvalidPosition."""
        check_consumer_key(owner, component)
        with self._lock:
            return self._consumers.get((owner, component)) or self._new(owner, component, after, self._clock())

    def moved(self, owner: str, component: str, after: int) -> Consumer:
        """The consumer that `reset` would store. Raises ConsumerNotFound, InvalidPosition."""
        with self._lock:
            known = self._known(owner, component)
            return replace(known, acknowledged=self._checked(after, self._head(), "after"))

    def unregister(self, owner: str, component: str, *, silent_ms: int | None = None) -> None:
        """See EventLog.unregister_consumer.

        `silent_ms`: set if the consumer is removed because it was silent for that long.
        """
        with self._lock:
            known = self._known(owner, component)
            self._state.delete(self._kind, _key(owner, component))
            del self._consumers[owner, component]
            self._notify(NotificationType.CONSUMER_UNREGISTERED, known, silentMs=silent_ms)

    def get(self, owner: str, component: str) -> Consumer | None:
        """That consumer, or None. Takes no lock, because a thread that waits for the disk may hold it."""
        return self._consumers.get((owner, component))

    def all(self) -> list[Consumer]:
        """All consumers, by owner and component."""
        with self._lock:
            return [self._consumers[key] for key in sorted(self._consumers)]

    def lowest_acknowledged(self) -> int | None:
        """The lowest position of all consumers; None if there is none."""
        with self._lock:
            return min((consumer.acknowledged for consumer in self._consumers.values()), default=None)

    def _new(self, owner: str, component: str, after: int | None, now: int) -> Consumer:
        head = self._head()
        return Consumer(owner, component, head if after is None else self._checked(after, head, "after"), 1, now, now)

    def _known(self, owner: str, component: str) -> Consumer:
        try:
            return self._consumers[owner, component]
        except (KeyError, TypeError):
            raise ConsumerNotFound(owner, component) from None

    def _store(self, consumer: Consumer, *, is_durable: bool = True) -> Consumer:
        """Acknowledgements are not made durable one by one: `acknowledge_all` commits them together."""
        key = _key(consumer.owner, consumer.component)
        self._state.put(self._kind, key, json.dumps(asdict(consumer)).encode(), is_durable=is_durable)
        self._consumers[consumer.owner, consumer.component] = consumer
        return consumer

    def _notify(self, type: NotificationType, consumer: Consumer, **more: int | None) -> None:
        self._bus.emit(
            type,
            log=self._log,
            owner=consumer.owner,
            component=consumer.component,
            acknowledged=consumer.acknowledged,
            **more,
            user=acting(),
        )

    @staticmethod
    def _checked(position: int, head: int, name: str) -> int:
        if not isinstance(position, int) or isinstance(position, bool) or not 0 <= position <= head:
            raise InvalidPosition(f"expected 0 to the head {head}, got {position!r}", name)
        return position


def stored_consumers(state: StateStore, incarnation: str) -> list[Consumer]:
    """The consumers of one incarnation of a log, as stored in the state."""
    return [Consumer(**json.loads(entry.value)) for _, entry in state.items(f"consumer/{incarnation}")]


def _key(owner: str, component: str) -> str:
    return f"{owner}\n{component}"
