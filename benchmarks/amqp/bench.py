"""What the questions share in one run: the contenders, started when they are first asked for."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .brokers.artemis import Artemis
from .brokers.broker import Broker
from .brokers.broker_j import BrokerJ
from .brokers.headwater import Headwater
from .brokers.rabbitmq import RabbitMq
from .cache import Unavailable
from .load import measured

KINDS: dict[str, type[Broker]] = {kind.label: kind for kind in (Headwater, Artemis, BrokerJ, RabbitMq)}
WARM_MESSAGES = 50_000


class AmqpBench:
    """One run. `scale` shortens the measured pieces of work (1 = full)."""

    def __init__(
        self,
        directory: Path,
        labels: Sequence[str],
        *,
        scale: float = 1.0,
        note: Callable[[str], None] = lambda text: None,
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.note = note
        self._directory = directory
        self._scale = scale
        self._brokers: dict[str, Broker] = {}
        self._numbers = itertools.count(1)
        try:
            for label in labels:
                self._open(label, complain)
        except BaseException:
            self.close()
            raise

    @property
    def labels(self) -> list[str]:
        """The contenders that are there; the first is what the others are compared with."""
        return list(self._brokers)

    @property
    def versions(self) -> dict[str, str]:
        """Of each contender."""
        return {label: broker.version for label, broker in self._brokers.items()}

    def broker(self, label: str) -> Broker:
        """A contender."""
        return self._brokers[label]

    @contextmanager
    def fresh(self, label: str) -> Iterator[Broker]:
        """A server of that kind that has done nothing yet, for as long as the block runs."""
        broker = KINDS[label](self._directory / f"{label}-{next(self._numbers)}")
        try:
            yield broker
        finally:
            broker.close()

    def count(self, full: int, *, multiple: int = 1) -> int:
        """So many, or fewer in a short run."""
        return max(multiple, int(full * self._scale) // multiple * multiple)

    def _open(self, label: str, complain: Callable[[str], None]) -> None:
        self.note(f"starting {label}")
        try:
            broker = KINDS[label](self._directory / label)
        except Unavailable as error:
            complain(f"without {error}")
            return
        self._brokers[label] = broker
        if not broker.is_warm_at_once:
            self.note(f"warming {label}")
            self._warm(broker)

    def _warm(self, broker: Broker) -> None:
        """Work that is not measured, so that a JIT compiler has done its work."""
        for settled in (False, True):
            address = broker.fresh_address()
            for operation in ("in", "out"):
                count = self.count(WARM_MESSAGES)
                request = broker.request(address)
                measured(broker.pid, count, operation=operation, size=256, settled=settled, **request)

    def close(self) -> None:
        """Stop every server and remove every file."""
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()
        shutil.rmtree(self._directory, ignore_errors=True)
