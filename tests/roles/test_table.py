"""The table has every call that the product has, and the page says what the table says."""

from __future__ import annotations

import pyarrow.flight as flight

from headwater.cne import server as cne
from headwater.console import server as console
from headwater.core.access import OpenGuard, Right
from headwater.dcb.server import Application
from headwater.flight.server.server import BulkServer
from headwater.flight.wire import ACTIONS
from headwater.futoin.functions.push import Pushing
from headwater.futoin.messages import interface
from headwater.futoin.server import handlers
from headwater.management import server as management_http
from headwater.management.entities import TYPES
from headwater.management.operations import Management
from headwater.server.front.health import HEALTH_PATHS, METRICS
from headwater.storage.memory import MemoryStore
from tests.console.hosting import console_host
from tests.docs.documents import ROOT

from . import calls_amqp, calls_flight, calls_futoin, table

PAGE = ROOT / "docs" / "reference" / "rights.md"


def calls(protocol: table.Protocol) -> set[str]:
    found = [row.call for row in protocol.rows]
    assert len(found) == len(set(found)), "a call is there twice"
    return set(found)


def test_every_http_route_is_in_the_table() -> None:
    routes = Application(MemoryStore(), OpenGuard()).routes.patterns
    of_server = {f"GET {path}" for path in ("/", *HEALTH_PATHS, METRICS)}
    assert calls(table.HTTP) == {f"{method} {path}" for method, path in routes} | of_server


def test_every_route_of_notifications_is_in_the_table() -> None:
    of_version = (*cne.ROUTES, cne._CURRENT_STATE)
    found = {f"{method} {route.path}" for route in of_version for method in route.handlers}
    assert calls(table.CNE) == found | {"GET /health", "GET api_versions"}
    assert [*cne._ROOT_HEALTH.handlers, *cne._VERSIONS.handlers] == ["GET", "GET"]


def test_every_function_of_futoin_is_in_the_table() -> None:
    handled = {" ".join(key) for key in handlers(Pushing())}
    assert calls(table.FUTOIN) == handled | {calls_futoin.DEFINITION}
    assert {calls_futoin.row_of(name) for name in interface._functions()} == handled


def test_every_operation_of_management_is_in_the_table() -> None:
    operations = {f"{operation} {type.name}" for type in TYPES.values() for operation in type.operations}
    assert calls(table.AMQP) == operations | {calls_amqp.LOGIN} | set(calls_amqp.LINKS)


def test_every_route_of_management_is_in_the_table() -> None:
    """Every method of a type that the type has; and each operation of the node itself."""
    routes = management_http.Application(Management(), OpenGuard()).routes.patterns
    assert {f"{method} {path}" for method, path in routes} == {
        "GET /management", "GET /management/{type}", "GET /management/{type}/{name}", "PUT /management/{type}/{name}",
        "PATCH /management/{type}/{name}", "DELETE /management/{type}/{name}",
        "POST /management/{type}/{name}/{operation}",
    }  # fmt: skip
    operations = {f"{operation} {type.name}" for type in TYPES.values() for operation in type.operations}
    assert calls(table.MANAGEMENT) == {"GET /management", "GET /management/{type}", *table.OPERATION_OF}
    assert set(table.OPERATION_OF.values()) == operations


def test_every_route_of_the_console_is_in_the_table() -> None:
    routes = console.Application(console_host(MemoryStore(), OpenGuard())).routes.patterns
    assert calls(table.CONSOLE) == {"GET /console/", *(f"{method} {path}" for method, path in routes)}


def test_every_call_of_flight_is_in_the_table() -> None:
    base = set(dir(flight.FlightServerBase))
    served = {name for name in vars(BulkServer) if name in base and not name.startswith("_")}
    served.remove("do_exchange")  # refused to everybody
    told = {call.split()[0] for call in calls(table.FLIGHT)}
    assert told - {"handshake"} == served
    actions = {call.removeprefix("do_action ") for call in calls(table.FLIGHT) if call.startswith("do_action ")}
    assert actions == set(ACTIONS)
    assert calls(table.FLIGHT) == {f"do_action {name}" for name in ACTIONS} | set(calls_flight.CALLS)


def test_rights_of_actions_are_those_that_list_actions_tells() -> None:
    needs = {row.call.removeprefix("do_action "): row.need for row in table.FLIGHT.rows}
    more = {row.call.removeprefix("do_action ") for row in table.FLIGHT.rows if row.about == table.OWN_WRITER}
    for name, shape in ACTIONS.items():
        has = {table.KNOWN} if shape.right is None else {table.KNOWN, shape.right.value}
        assert needs[name].is_met(has | {table.MANAGE} if name in more else has), name
        assert shape.right is None or not needs[name].is_met({table.KNOWN, *Right} - {shape.right.value}), name


def test_requests_of_no_other_room_reach_dcb() -> None:
    """A new room of the server needs a section of the table: these are all that there are."""
    assert set(cne.ROOMS) == {"api", "ocloudnotifications", "health"}
    assert [protocol.name.split()[0].strip(":,") for protocol in table.PROTOCOLS] == [
        "HTTP",
        "FutoIn",
        "Cloud",
        "AMQP",
        "Management",
        "Console",
        "Arrow",
    ]


def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == table.page(), "python -m tests.roles.table > docs/reference/rights.md"
