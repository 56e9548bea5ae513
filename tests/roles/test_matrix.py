"""Every call of every protocol, by everybody: who may gets what is asked for, who may not is refused, and no more.

Each test makes one call: first as all those who are refused, after which nothing may be other than before; then as
those who may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from . import calls_amqp, calls_cne, calls_console, calls_flight, calls_futoin, calls_http, calls_management, table
from .table import Need, Row
from .world import KNOWN_ROLES, NOBODY, ROLES, WRONG, Role, Target, Verdict, World

pytestmark = pytest.mark.timeout(300)


def expected(need: Need, role: Role) -> Verdict:
    if need.is_met(role.has):
        return Verdict.DONE
    return Verdict.UNAUTHENTICATED if role in (NOBODY, WRONG) else Verdict.FORBIDDEN


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What was there before and is not, and what is there now and was not, of each kind that is other than it was."""
    return {
        kind: (
            [its for its in before[kind] if its not in after[kind]],
            [its for its in after[kind] if its not in before[kind]],
        )
        for kind in before
        if before[kind] != after[kind]
    }


def check(
    world: World,
    need: Need,
    prepare: Callable[[], Target],
    make: Callable[[Role, Target], Verdict],
    roles: tuple[Role, ...] = ROLES,
) -> None:
    refused = [role for role in roles if not need.is_met(role.has)]
    if refused:
        world.victim = ""  # that of an earlier call may be on its way out
        target = prepare()
        before = world.state()
        for role in refused:
            assert make(role, target) is expected(need, role), role.name
        assert changed(before, world.state()) == {}
    for role in roles:
        if role not in refused:
            assert make(role, prepare()) is Verdict.DONE, role.name


def rows(protocol: table.Protocol, without: tuple[str, ...] = ()) -> Any:
    kept = [row for row in protocol.rows if row.call not in without]
    return pytest.mark.parametrize("row", kept, ids=lambda row: row.call)


@rows(table.HTTP)
def test_http(world: World, row: Row) -> None:
    call = row.call
    check(
        world,
        row.need,
        lambda: calls_http.prepared(world, call),
        lambda role, target: calls_http.make(world, call, role, target),
    )


@pytest.mark.parametrize("version", calls_cne.VERSIONS)
@rows(table.CNE)
def test_notifications(world: World, row: Row, version: str) -> None:
    call = row.call
    check(
        world,
        row.need,
        lambda: calls_cne.prepared(world, call),
        lambda role, target: calls_cne.make(world, call, version, role, target),
    )


FUTOIN: Mapping[str, Row] = {row.call: row for row in table.FUTOIN.rows}


@pytest.mark.parametrize(
    ("function", "channel"),
    [(function, channel) for function in calls_futoin.FUNCTIONS for channel in calls_futoin.channels_of(function)],
)
def test_futoin(world: World, function: str, channel: str) -> None:
    check(
        world,
        FUTOIN[calls_futoin.row_of(function)].need,
        lambda: {},
        lambda role, _: calls_futoin.make(world, function, channel, role, calls_futoin.parameters(world, function)),
    )


def test_futoin_definitions(world: World) -> None:
    need = FUTOIN[calls_futoin.DEFINITION].need
    check(world, need, lambda: {}, lambda role, _: calls_futoin.definition(world, role))


def test_amqp_login(world: World) -> None:
    [row] = [row for row in table.AMQP.rows if row.call == calls_amqp.LOGIN]
    check(world, row.need, lambda: {}, lambda role, _: calls_amqp.login(world, role))


@rows(table.AMQP, without=(calls_amqp.LOGIN,))
def test_amqp(world: World, row: Row) -> None:
    """Without login there is no call: see test_before_login."""
    call = row.call
    check(
        world,
        row.need,
        lambda: calls_amqp.prepared(world, call),
        lambda role, target: calls_amqp.make(world, call, role, target),
        KNOWN_ROLES,
    )


@rows(table.MANAGEMENT)
def test_management(world: World, row: Row) -> None:
    call = row.call
    check(
        world,
        row.need,
        lambda: calls_management.prepared(world, call),
        lambda role, target: calls_management.make(world, call, role, target),
    )


@rows(table.CONSOLE)
def test_console(world: World, row: Row) -> None:
    call = row.call
    check(world, row.need, lambda: {}, lambda role, _: calls_console.make(world, call, role))


@rows(table.FLIGHT)
def test_flight(world: World, row: Row) -> None:
    call = row.call
    check(
        world,
        row.need,
        lambda: calls_flight.prepared(world, call),
        lambda role, target: calls_flight.make(world, call, role, target),
    )
