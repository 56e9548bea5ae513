"""What a log remembers of its receivers, over disconnects and restarts."""

from __future__ import annotations

import json

import pytest

from headwater.amqp.positions.stored import Expiry, Positions, Remembered, load, store
from headwater.amqp.protocol.conditions import LinkFault
from headwater.core.errors import EventLogError
from headwater.core.loop.memory import MemoryAccount, Owner, Share
from headwater.core.shared_bytes import FREE_BYTES
from headwater.core.state import StateStore, kinds_of_log
from headwater.storage.memory import MemoryState
from headwater.storage.state.sqlite_state import SqliteState

MANY = 1000
LOG = "0123"


@pytest.fixture(params=["memory", "sqlite"])
def state(request, tmp_path):
    if request.param == "memory":
        yield MemoryState()
        return
    sqlite = SqliteState(tmp_path / "state.sqlite")
    yield sqlite
    sqlite.close()


def attached(positions: Positions, link: str = "l", **given: object) -> Remembered:
    asked = {"after": 10, "expiry": Expiry.NEVER, "timeout_s": 0, "is_durable": True} | given
    return positions.attached("c", link, **asked)


def write(positions: Positions, state: StateStore, log: str = LOG) -> None:
    changes = positions.changes()
    store(state, log, changes)
    positions.stored(changes)


# Termini


def test_durable_terminus_goes_on_where_it_was_left_after_a_restart(state):
    positions = load(state, LOG, 0, MANY)
    remembered = attached(positions)
    for number in (11, 12, 13):
        remembered.position.sent([number])
    remembered.position.finish([11, 13])
    write(positions, state)
    again = load(state, LOG, 1, MANY)
    known = attached(again, after=99)
    assert known.position.after == 11
    assert load(state, "another incarnation", 1, MANY).remembered("c", "l") is None


def test_since_when_it_has_no_link_outlives_the_server(state):
    positions = load(state, LOG, 0, MANY, 1000)
    left, held = attached(positions), attached(positions, "held")
    positions.ended(left, Expiry.LINK_DETACH, 100)
    positions.ended(left, Expiry.CONNECTION_CLOSE, 500)
    assert (positions.expires_at(left), positions.expires_at(held), positions.expires_next()) == (1100, None, 1100)
    write(positions, state)
    again = load(state, LOG, 700, MANY, 1000)
    assert sorted(again.expires_at(each) for each in again.durable()) == [1100, 1700], "a restart ends links, too"
    write(again, state)
    assert [each.link for each in load(state, LOG, 1200, MANY, 1000).durable()] == ["held"]
    assert len(load(state, LOG, 10**15, MANY).durable()) == 2, "without the setting they are kept"


def test_terminus_that_is_not_durable_is_remembered_while_the_server_runs(state):
    positions = load(state, LOG, 0, MANY)
    remembered = attached(positions, is_durable=False)
    remembered.position.passed(15)
    positions.ended(remembered, Expiry.CONNECTION_CLOSE, 5)
    assert attached(positions).position.after == 15
    positions.closed(remembered)
    attached(positions, is_durable=False)
    assert positions.changes() == []


def test_receiver_that_closes_its_link_is_forgotten(state):
    positions = load(state, LOG, 0, MANY)
    remembered = attached(positions)
    write(positions, state)
    positions.closed(remembered)
    positions.closed(remembered)
    write(positions, state)
    assert load(state, LOG, 1, MANY).remembered("c", "l") is None
    assert positions.changes() == []


@pytest.mark.parametrize("policy", Expiry)
@pytest.mark.parametrize("what", [Expiry.LINK_DETACH, Expiry.SESSION_END, Expiry.CONNECTION_CLOSE])
def test_terminus_expires_after_what_its_policy_names(policy, what):
    positions = Positions(MANY)
    remembered = attached(positions, expiry=policy, timeout_s=3)
    positions.ended(remembered, what, 1000)
    assert (remembered.expires_at == 4000) == (policy <= what)
    positions.expire(3999)
    assert positions.remembered("c", "l") is remembered
    assert positions.expires_next() == (4000 if policy <= what else None)
    positions.expire(4000)
    assert (positions.remembered("c", "l") is None) == (policy <= what)


def test_time_runs_from_the_first_end_and_stops_at_the_next_attach():
    positions = Positions(MANY)
    remembered = attached(positions, expiry=Expiry.LINK_DETACH, timeout_s=3)
    positions.ended(remembered, Expiry.LINK_DETACH, 1000)
    positions.ended(remembered, Expiry.SESSION_END, 2000)
    assert remembered.expires_at == 4000
    assert attached(positions, expiry=Expiry.LINK_DETACH, timeout_s=9) is remembered
    assert (remembered.expires_at, remembered.timeout_s) == (None, 9)


def test_without_a_timeout_it_expires_at_once():
    positions = Positions(MANY)
    remembered = attached(positions, expiry=Expiry.SESSION_END)
    positions.ended(remembered, Expiry.LINK_DETACH, 1000)
    assert positions.remembered("c", "l") is remembered
    positions.ended(remembered, Expiry.SESSION_END, 1000)
    assert positions.remembered("c", "l") is None


def test_restart_ends_all_connections(state):
    positions = load(state, LOG, 0, MANY)
    for policy in Expiry:
        attached(positions, policy.symbol, expiry=policy, timeout_s=3)
    attached(positions, "no time", expiry=Expiry.SESSION_END)
    write(positions, state)
    again = load(state, LOG, 5000, MANY)
    assert again.remembered("c", "no time") is None
    assert again.expires_next() == 8000
    write(again, state)
    late = load(state, LOG, 7000, MANY)
    assert late.expires_next() == 8000, "the time that ran before counts"
    assert load(state, LOG, 8000, MANY).expires_next() is None
    assert load(state, LOG, 8000, MANY).remembered("c", "never") is not None


def test_detached_receiver_is_sent_again_what_it_did_not_settle():
    positions = Positions(MANY)
    remembered = attached(positions)
    remembered.position.sent([11])
    positions.ended(remembered, Expiry.LINK_DETACH, 0)
    assert remembered.position.next_again(0.0) == (11, 0)


@pytest.mark.parametrize(("container", "link", "said"), [
    ("", "l", "container-id"), ("c", "", "link name"), ("c\nd", "l", "printable"), ("c", "x" * 257, "1 to 256"),
])  # fmt: skip
def test_names_that_cannot_be_kept_are_refused(container, link, said):
    with pytest.raises(LinkFault, match=said):
        Positions(MANY).attached(container, link, after=0, expiry=Expiry.NEVER, timeout_s=0, is_durable=True)


def test_number_of_termini_is_bounded():
    positions = Positions(2)
    attached(positions, "a")
    attached(positions, "b")
    attached(positions, "a")
    with pytest.raises(LinkFault) as caught:
        attached(positions, "d")
    assert caught.value.condition == "amqp:resource-limit-exceeded"


def test_policies_have_the_names_of_the_standard():
    names = ["link-detach", "session-end", "connection-close", "never"]
    assert [Expiry.of(name) for name in names] == list(Expiry)
    with pytest.raises(LinkFault, match="expected one of link-detach, session-end"):
        Expiry.of("some day")


# Groups


def test_group_goes_on_where_it_was_left(state):
    positions = load(state, LOG, 0, MANY)
    position = positions.group_position("g", 3, after=10)
    position.passed(17)
    assert positions.group_position("g", 3, after=99) is position
    assert positions.group_position("h", 3, after=99).after == 99
    write(positions, state)
    again = load(state, LOG, 1, MANY)
    assert again.groups() == {("g", 3): 17, ("h", 3): 99}
    again.forget_group("g")
    write(again, state)
    assert load(state, LOG, 2, MANY).groups() == {("h", 3): 99}


def test_group_is_reset_where_its_consumer_asks_for_that():
    positions = Positions(MANY)
    positions.group_position("g", 3, after=10)
    assert positions.group_position("g", 3, after=5, is_reset=True).after == 5
    assert positions.group_position("g", 3, after=99).after == 5


def test_epochs_count_as_the_positions_that_they_are_of():
    positions = Positions(2)
    positions.record_epoch("g", 0, 7)
    positions.group_position("h", 0, after=0)
    with pytest.raises(LinkFault, match="remembers 2 group positions"):
        positions.group_position("h", 1, after=0)
    positions.group_position("g", 0, after=0)
    positions.forget_group("h")
    positions.group_position("h", 1, after=0)


def test_number_of_group_positions_is_bounded():
    positions = Positions(1)
    positions.group_position("g", 0, after=0)
    with pytest.raises(LinkFault) as caught:
        positions.group_position("g", 1, after=0)
    assert caught.value.condition == "amqp:resource-limit-exceeded"


def test_epochs_are_durable_and_zero_is_none(state):
    positions = load(state, LOG, 0, MANY)
    positions.record_epoch("g", 0, 2**64 - 1)
    positions.record_epoch("g", 1, 5)
    write(positions, state)
    again = load(state, LOG, 1, MANY)
    assert again.epochs == {("g", 0): 2**64 - 1, ("g", 1): 5}
    again.record_epoch("g", 1, 0)
    again.record_epoch("g", 2, 0)
    write(again, state)
    assert load(state, LOG, 2, MANY).epochs == {("g", 0): 2**64 - 1}


class Recording(MemoryState):
    def __init__(self):
        super().__init__()
        self.puts: list[tuple[str, bool]] = []

    def put(self, kind, key, value, expected_version=None, *, is_durable=True):
        self.puts.append((key.partition("\n")[0], is_durable))
        return super().put(kind, key, value, expected_version, is_durable=is_durable)


def test_only_epochs_are_put_durably():
    state, positions = Recording(), Positions(MANY)
    attached(positions)
    positions.group_position("g", 0, after=1)
    positions.record_epoch("g", 0, 1)
    write(positions, state)
    assert state.puts == [("amqp-terminus", False), ("amqp-group", False), ("amqp-epoch", True)]


# Changes


def test_only_what_changed_is_written():
    state, positions = Recording(), Positions(MANY)
    for link in "abc":
        attached(positions, link)
    write(positions, state)
    assert positions.changes() == []
    positions.remembered("c", "b").position.passed(11)
    assert [change.key for change in positions.changes()] == ["amqp-terminus\nc\nb"]


def test_what_could_not_be_stored_is_among_the_next_changes():
    class Failing(MemoryState):
        def put(self, *arguments, **more):
            raise EventLogError("no")

    positions, state = Positions(MANY), MemoryState()
    remembered = attached(positions)
    with pytest.raises(EventLogError):
        store(Failing(), LOG, positions.changes())
    changes = positions.changes()
    remembered.position.passed(12)
    store(state, LOG, changes)
    positions.stored(changes)
    assert len(changes) == len(positions.changes()) == 1
    write(positions, state)
    assert load(state, LOG, 0, MANY).remembered("c", "l").position.after == 12


def test_terminus_forgotten_while_it_is_stored_is_deleted_next(state):
    positions = Positions(MANY)
    remembered = attached(positions)
    changes = positions.changes()
    positions.closed(remembered)
    store(state, LOG, changes)
    positions.stored(changes)
    [change] = positions.changes()
    assert change.value is None
    write(positions, state)
    assert load(state, LOG, 0, MANY).remembered("c", "l") is None


def test_source_outlives_the_server_and_0_1_0_stored_none(state):
    positions = load(state, LOG, 0, MANY)
    attached(positions, "new", source=b"\x00\x01")
    attached(positions, "old")
    write(positions, state)
    kind = kinds_of_log(LOG)[1]
    for key, entry in list(state.items(kind)):
        if key.endswith("old"):
            value = json.loads(entry.value)
            del value["source"]
            state.put(kind, key, json.dumps(value).encode())
    again = load(state, LOG, 1, MANY)
    assert [again.remembered("c", link).source for link in ("new", "old")] == [b"\x00\x01", b""]
    assert again.remembered("c", "new").is_loaded


def test_what_sources_take_together_is_counted():
    account = MemoryAccount(2**20)
    share, others = Share(account), Share(account)
    positions = Positions(MANY)
    positions.count_in(share)
    others.belong(Owner("others"))
    others.hold(2**20)
    share.hold(FREE_BYTES - 100)
    first = attached(positions, "a", source=bytes(60))
    with pytest.raises(LinkFault) as caught:
        attached(positions, "b", source=bytes(41))
    assert caught.value.condition == "amqp:resource-limit-exceeded"
    attached(positions, "a", source=bytes(59))
    attached(positions, "b", source=bytes(41))
    positions.closed(first)
    attached(positions, "c", source=bytes(59))
