"""`headwater consumers`: lists the registered consumers of a log with their lag, and changes their positions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import click

from ..core.errors import ConsumerNotFound, PositionOfOtherIncarnation, PositionTrimmed
from . import output
from .consent import when_agreed, yes_option

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ..client import RemoteLog, Server
    from ..core.consumer import Consumer

    F = TypeVar("F", bound=Callable[..., Any])


def _consumer_arguments(function: F) -> F:
    for name in ("component", "owner", "log"):
        function = click.argument(name)(function)
    return function


@click.group(
    epilog=output.examples(
        "headwater consumers list orders", "headwater consumers reset orders spark archiver --after 0"
    )
)
@output.server_options_of_group
def consumers() -> None:
    """List, register and move the reliable consumers of a log.

    Events that a registered consumer has not acknowledged are not trimmed. The owner of a FutoIn consumer is its user.
    Commands that would drop events by retention ask for confirmation; without a terminal, use --yes.
    """


@consumers.command("list", epilog=output.examples("headwater consumers list orders --json"))
@click.argument("log")
@output.json_option
@output.server_options
def list_consumers(server: Server, log: str, as_json: bool) -> None:
    """List the consumers of LOG, with the number of unacknowledged events and the age of the oldest."""
    lags = [_Lag.of(server, log, consumer) for consumer in server.log(log).consumers()]
    if as_json:
        output.show_json([asdict(lag.consumer) | {"behind": lag.behind, "age_ms": lag.age_ms} for lag in lags])
    elif not lags:
        output.show_nothing(
            f"no consumers of {log}; `headwater consumers register {log} OWNER COMPONENT` registers one; a "
            "FutoIn consumer, an archive or an AMQP consumer group registers itself"
        )
    else:
        columns = ["owner", "component", "acknowledged", "behind", "age", "epoch", "last seen"]
        output.show_table(columns, [lag.row for lag in lags])


@consumers.command(epilog=output.examples("headwater consumers register orders alice Billing --after 0"))
@_consumer_arguments
@click.option("--after", type=click.IntRange(min=0), help="Start after this number.  [default: the last event]")
@yes_option
@output.server_options
def register(server: Server, log: str, owner: str, component: str, after: int | None, yes: bool) -> None:
    """Register a consumer that may not register itself. A registered consumer keeps its position."""
    target = server.log(log)
    consumer = when_agreed(
        lambda drops: target.register_consumer(owner, component, after=after, drops_at_most=drops), yes
    )
    click.echo(f"registered {owner} {component}; it continues after {consumer.acknowledged:,}")


@consumers.command(epilog=output.examples("headwater consumers reset orders spark archiver --after 0"))
@_consumer_arguments
@click.option(
    "--after", type=click.IntRange(min=0), required=True, help="Mark everything up to this number as processed."
)
@yes_option
@output.server_options
def reset(server: Server, log: str, owner: str, component: str, after: int, yes: bool) -> None:
    """Set a consumer's position, forward or back."""
    _reset(server.log(log), owner, component, after, yes)
    click.echo(f"{owner} {component} continues after {after:,}")


@consumers.command(epilog=output.examples("headwater consumers skip orders alice Billing --events 1"))
@_consumer_arguments
@click.option("--events", type=click.IntRange(min=1), help="Number of events to skip.  [default: all]")
@yes_option
@output.server_options
def skip(server: Server, log: str, owner: str, component: str, events: int | None, yes: bool) -> None:
    """Skip the next events of a consumer, such as one that it cannot process."""
    target = server.log(log)
    head = target.head()
    if events is None:
        after = head
    else:
        position = _known(target, owner, component).acknowledged
        after = max((event.sequence_number for event in _next_events(target, position, events)), default=head)
    _reset(target, owner, component, after, yes)
    click.echo(f"{owner} {component} continues after {after:,}")


@consumers.command(epilog=output.examples("headwater consumers unregister orders spark archiver"))
@_consumer_arguments
@yes_option
@output.server_options
def unregister(server: Server, log: str, owner: str, component: str, yes: bool) -> None:
    """Remove a consumer. It no longer holds back trimming."""
    target = server.log(log)
    when_agreed(lambda drops: target.unregister_consumer(owner, component, drops_at_most=drops), yes)
    click.echo(f"unregistered {owner} {component}")


def _reset(log: RemoteLog, owner: str, component: str, after: int, yes: bool) -> None:
    when_agreed(lambda drops: log.reset_consumer(owner, component, after, drops_at_most=drops), yes)


class _Lag(NamedTuple):
    """A consumer and its lag."""

    consumer: Consumer
    behind: int
    age_ms: int
    """The age of the first event that it has not acknowledged; 0 if there is none."""

    @staticmethod
    def of(server: Server, log: str, consumer: Consumer) -> _Lag:
        """The lag as counted by the server. Raises Refused for a consumer that has just been unregistered."""
        from ..management.ports import joined

        found = server.management.read("consumer", joined(log, consumer.owner, consumer.component))
        return _Lag(consumer, found["lag"], found["lagMs"])

    @property
    def row(self) -> tuple[object, ...]:
        consumer = self.consumer
        age = _duration(self.age_ms // 1000) if self.age_ms else "-"
        seen = output.show_time(consumer.seen_at)
        return (consumer.owner, consumer.component, consumer.acknowledged, self.behind, age, consumer.epoch, seen)


def _next_events(log: RemoteLog, after: int, limit: int) -> Any:
    """The following events. Starts at the first retained event if the next ones were trimmed."""
    try:
        return log.read(after=after, limit=limit)
    except (PositionTrimmed, PositionOfOtherIncarnation):
        return log.read(limit=limit)


def _known(log: RemoteLog, owner: str, component: str) -> Consumer:
    for consumer in log.consumers():
        if (consumer.owner, consumer.component) == (owner, component):
            return consumer
    raise ConsumerNotFound(owner, component)


def _duration(seconds: int) -> str:
    """The duration in at most two units: `3d 4h`, `12m 5s`."""
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
