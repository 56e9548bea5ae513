"""Which subscription asks for which resource."""

from __future__ import annotations

import pytest

from headwater.cne.notifications.addresses import Pattern, Place, addresses_of, parse, tags_of
from tests.every import every

STATE = "/sync/sync-status/sync-state"
NOWHERE = Place()
HERE = Place("east", "site1", "worker-0")


def asks(pattern: str, *candidates: str, own: Place = NOWHERE) -> bool:
    compiled = Pattern(pattern, own)
    return any(compiled.matches(address) for address in addresses_of(candidates))


def test_what_is_too_long_to_come_again_is_not_remembered():
    short, long = f"/east/site1/worker-0{STATE}", f"/{'a/' * 5000}{STATE}"
    assert parse(short) is parse(short)
    assert addresses_of((short,)) is addresses_of((short,))
    assert parse(long) is not parse(long)
    assert addresses_of((long,)) is not addresses_of((long,))
    assert tags_of(parse(long), HERE) is not tags_of(parse(long), HERE)
    assert asks(long, long)


@every(
    ("pattern", "address"),
    [
        (f"/east/site1/worker-0{STATE}", f"/east/site1/worker-0{STATE}"),
        (f"/east/site1/worker-0{STATE}/", f"/east/site1/worker-0{STATE}"),
        ("/east/site1/worker-0/sync", f"/east/site1/worker-0{STATE}"),
        ("/east/site1/worker-0", f"/east/site1/worker-0{STATE}"),
        ("/east", f"/east/site1/worker-0{STATE}"),
        (f"/east/*/worker-*{STATE}", f"/east/site1/worker-0{STATE}"),
        (f"/east/*/*{STATE}", f"/east/site1/worker-0{STATE}"),
        ("/east/site1/worker-0/sync/*", f"/east/site1/worker-0{STATE}"),
        ("/sync", f"/east/site1/worker-0{STATE}"),
        ("/sync/sync-status/*", f"/east/site1/worker-0{STATE}"),
        (STATE, STATE),
        ("test/test", "/test/test"),
        ("/cluster/node/mock", "/cluster/node/mock"),
        ("/", "/anything"),
        (f"/././{STATE}", f"/east/site1/worker-0{STATE}"),
        (f"/./worker-0{STATE}", f"/./worker-0{STATE}"),
        (f"/./worker-0{STATE}", f"/east/worker-0{STATE}"),
        ("/././*", f"/east/worker-0{STATE}"),
        ("/east/./worker-0/sync", f"/east/site9/worker-0{STATE}"),
    ],
)
def test_it_asks_for_that(pattern, address):
    assert asks(pattern, address)


@pytest.mark.parametrize(
    ("pattern", "address"),
    [
        ("/sync/sync-stat", STATE),  # a segment is whole
        (f"/east/site1/worker-00{STATE}", f"/east/site1/worker-0{STATE}"),
        (f"/east/site1/worker-0{STATE}/more", f"/east/site1/worker-0{STATE}"),
        (f"/east/site1/worker-0{STATE}/*", f"/east/site1/worker-0{STATE}"),  # below, and not itself
        ("/east/*/sync", f"/east/site1/worker-0{STATE}"),  # a star does not cross a slash
        (f"/east/site1/node.example.com{STATE}", f"/east/site1/nodeXexampleXcom{STATE}"),  # a dot is a dot
        (f"/west/site1/worker-0{STATE}", f"/east/site1/worker-0{STATE}"),
        ("/test/nonesubscribed", "/nonesubscribed"),
    ],
)
def test_it_does_not_ask_for_that(pattern, address):
    assert not asks(pattern, address)


def test_dot_is_the_own_name_where_it_is_known():
    assert asks(f"/./site1/worker-0{STATE}", f"/east/site1/worker-0{STATE}", own=HERE)
    assert not asks(f"/./site1/worker-0{STATE}", f"/west/site1/worker-0{STATE}", own=HERE)
    assert asks(f"/././{STATE}", f"/east/worker-0{STATE}", own=HERE)
    assert not asks(f"/././{STATE}", f"/east/worker-1{STATE}", own=HERE)
    assert asks(f"/east/site1/worker-0{STATE}", f"/./site1/.{STATE}", own=HERE)


def test_event_without_place_is_here():
    assert asks(f"/east/site1/worker-0{STATE}", STATE, own=HERE)
    assert not asks(f"/east/site1/worker-1{STATE}", STATE, own=HERE)
    assert asks(f"/any/where{STATE}", STATE, own=NOWHERE)


def test_place_of_the_publisher_completes_the_addresses_without():
    publisher, value = f"/cluster/node/worker-1{STATE}", "/mock"
    assert asks("/cluster/node/worker-1/mock", publisher, value)
    assert not asks(f"/cluster/node/worker-2{STATE}", publisher, STATE)
    assert asks(f"/cluster/node/worker-1{STATE}", "/cluster/node/worker-1/CLOCK_REALTIME", STATE)


def test_wildcards_take_linear_time():
    pattern, address = Pattern("/" + "*a" * 2000 + "*b", NOWHERE), parse("/" + "a" * 50_000)
    assert not pattern.matches(address)  # a backtracking matcher would not come to an end


@pytest.mark.parametrize(
    ("address", "tags"),
    [
        (f"/east/site1/worker-0{STATE}", ["cluster:east", "site:site1", "node:worker-0", f"resource:{STATE}"]),
        (f"/east/worker-0{STATE}", ["cluster:east", "node:worker-0", f"resource:{STATE}"]),
        (f"/east/s1/rack7/worker-0{STATE}", ["cluster:east", "site:s1/rack7", "node:worker-0", f"resource:{STATE}"]),
        (STATE, [f"resource:{STATE}"]),
        (f"/./.{STATE}", [f"resource:{STATE}"]),
        ("/cluster/node/ptp", ["cluster:cluster", "node:node", "resource:/ptp"]),
    ],
)
def test_tags_tell_cluster_site_node_and_resource(address, tags):
    assert [f"{key}:{value}" for key, value in tags_of(parse(address), NOWHERE)] == tags


def test_own_names_are_filled_in():
    assert dict(tags_of(parse(f"/./.{STATE}"), HERE)) == {
        "cluster": "east", "site": "site1", "node": "worker-0", "resource": STATE,
    }  # fmt: skip


LOCK = "/sync/ptp-status/lock-state"
INSTANCE = f"/./controller-0/ptp-inst1{LOCK}"
CONTROLLER = Place("", "", "controller-0")
PATTERNS_OF_INSTANCE = [
    f"/./controller-0{LOCK}", f"/././{LOCK}", f"/./*{LOCK}", f"/./*/*{LOCK}", INSTANCE, f"/././ptp-inst1{LOCK}",
    "/./controller-0/sync", "/././sync", "/sync", "/./controller-0",
]  # fmt: skip


@pytest.mark.parametrize("own", [NOWHERE, CONTROLLER])
@every("pattern", PATTERNS_OF_INSTANCE)
def test_it_asks_for_an_instance_on_that_node(own, pattern):
    assert asks(pattern, INSTANCE, own=own)


@every(
    ("pattern", "address", "own"),
    [
        (f"/./controller-1{LOCK}", INSTANCE, CONTROLLER),
        (f"/./controller-0/ptp-inst2{LOCK}", INSTANCE, CONTROLLER),
        (f"/././{LOCK}", f"/./controller-1/ptp-inst1{LOCK}", CONTROLLER),
        (f"/east/./{LOCK}", f"/east/site1/worker-0{LOCK}", HERE),  # a site is no node
        (f"/east/*{LOCK}", f"/east/site1/worker-0/ptp-inst1{LOCK}", HERE),
        ("/cluster/node/ptp", "/cluster/node/worker-0/ptp", NOWHERE),  # where no root says where the resource begins
    ],
)
def test_it_does_not_ask_for_an_instance_on_another_node(pattern, address, own):
    assert not asks(pattern, address, own=own)


def test_it_asks_for_an_instance_at_a_whole_address():
    assert asks(f"/east/site1/worker-0{LOCK}", f"/east/site1/worker-0/ptp-inst1{LOCK}", own=HERE)
    assert asks(f"/east/*/worker-*{LOCK}", f"/east/site1/worker-0/ptp-inst1{LOCK}", own=HERE)
    assert asks(f"/././{LOCK}", f"/east/site1/worker-0/ptp-inst1{LOCK}", own=HERE)


@pytest.mark.parametrize(
    ("address", "own", "tags"),
    [
        (INSTANCE, CONTROLLER, ["node:controller-0", "instance:ptp-inst1"]),
        (INSTANCE, NOWHERE, ["site:controller-0", "node:controller-0", "node:ptp-inst1", "instance:ptp-inst1"]),
        (f"/./controller-1/ptp1{LOCK}", CONTROLLER,
         ["site:controller-1", "node:controller-1", "node:ptp1", "instance:ptp1"]),
        (f"/east/site1/worker-0/a/b{LOCK}", HERE, ["cluster:east", "site:site1", "node:worker-0", "instance:a/b"]),
        (f"/./site1/.{LOCK}", NOWHERE, ["site:site1"]),
    ],
)  # fmt: skip
def test_tags_tell_the_instance_on_a_node(address, own, tags):
    assert [f"{key}:{value}" for key, value in tags_of(parse(address), own)] == [*tags, f"resource:{LOCK}"]
