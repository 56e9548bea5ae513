"""Consumer groups: assignment, waiting, epochs, fair shares; and that no partition ever has two owners."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headwater.amqp.settings import AmqpSettings
from headwater.amqp.streams.groups import Assign, Close, Drain, Groups, RecordEpoch, Refuse

SETTINGS = AmqpSettings(groups_max=3, group_pending_max=2, group_pending_ms=60_000, group_drain_ms=10_000)


def groups(
    partitions: int = 2, epochs: dict[tuple[str, int], int] | None = None, settings: AmqpSettings = SETTINGS
) -> Groups:
    return Groups(partitions, settings, epochs or {})


# Assigned by the node (4.5.1)


def test_links_get_the_lowest_free_partitions():
    node = groups(3)
    assert node.attach("g", "a", "A", 0) == [Assign("a", 0, 0)]
    assert node.attach("g", "b", "A", 0) == [Assign("b", 1, 0)]
    node.detached("a", 1, is_closed_by_receiver=True)
    assert node.attach("g", "c", "A", 2) == [Assign("c", 0, 0)]
    assert node.owners("g") == ["c", "b", None]


def test_groups_do_not_touch_each_other():
    node = groups(1)
    assert node.attach("g", "a", "A", 0) == [Assign("a", 0, 0)]
    assert node.attach("h", "b", "B", 0) == [Assign("b", 0, 0)]
    assert (node.owners("g"), node.owners("h"), node.owners("i")) == (["a"], ["b"], [None])


def test_attach_waits_until_a_partition_becomes_free():
    node = groups(1)
    node.attach("g", "a", "A", 0)
    assert node.attach("g", "b", "B", 1) == []
    assert node.due() == 61
    assert node.detached("a", 5, is_closed_by_receiver=False) == [Assign("b", 0, 0)]
    assert node.due() is None


def test_attach_that_waited_its_time_is_refused():
    node = groups(1)
    node.attach("g", "a", "A", 0)
    node.attach("g", "b", "B", 1)
    assert node.tick(60.9) == []
    [refusal] = node.tick(61)
    assert refusal[:2] == ("b", "amqp:link:detach-forced")
    assert "in 60 s" in refusal.description
    assert node.detached("a", 62, is_closed_by_receiver=True) == []


def test_only_so_many_attaches_wait():
    node = groups(1)
    for link in "abc":
        node.attach("g", link, "A", 0)
    [refusal] = node.attach("g", "d", "A", 0)
    assert refusal[:2] == ("d", "amqp:link:detach-forced")
    assert "2 more receivers wait" in refusal.description


def test_attach_may_be_refused_at_once():
    node = groups(1, settings=AmqpSettings(group_pending_max=0))
    node.attach("g", "a", "A", 0)
    [refusal] = node.attach("g", "b", "A", 0)
    assert refusal[:2] == ("b", "amqp:link:detach-forced")
    assert refusal.description == "all 1 partitions of the group 'g' have a receiver"


def test_who_has_a_partition_and_wants_more_takes_no_place_of_those_that_wait():
    node = groups(2)
    for name in "ab":
        node.attach("g", f"{name}1", name, 0, has_several=True)
    for name in "ab":
        assert node.attach("g", f"{name}2", name, 0, has_several=True) == []
    assert [node.attach("g", name, name, 0, has_several=True) for name in "cd"] == [[], []]
    [refusal] = node.attach("g", "e", "e", 0, has_several=True)
    assert refusal[:2] == ("e", "amqp:link:detach-forced") and "2 more receivers wait" in refusal.description
    assert node.due() is None and node.tick(10**9) == [], "none of them was promised an answer"


def test_attach_that_waits_may_be_given_up():
    node = groups(1)
    node.attach("g", "a", "A", 0)
    node.attach("g", "b", "B", 0)
    assert node.detached("b", 1, is_closed_by_receiver=True) == []
    assert node.detached("a", 2, is_closed_by_receiver=True) == []


def test_number_of_groups_is_bounded_and_empty_ones_do_not_count():
    node = groups(1)
    for name in "ghi":
        node.attach(name, name, "A", 0)
    [refusal] = node.attach("j", "j", "A", 0)
    assert refusal[:2] == ("j", "amqp:resource-limit-exceeded")
    node.detached("g", 1, is_closed_by_receiver=True)
    assert node.attach("j", "j", "A", 2) == [Assign("j", 0, 0)]


# Negotiated by the consumers (4.5.2)


def test_named_partition_is_bound_and_epoch_begins_with_zero():
    node = groups()
    assert node.attach("g", "a", "A", 0, partition=1) == [Assign("a", 1, 0)]


@pytest.mark.parametrize("epoch", [None, 0, 4, 5])
def test_partition_that_has_an_owner_is_locked_for_an_epoch_that_is_not_greater(epoch):
    node = groups()
    assert node.attach("g", "a", "A", 0, 1, 5) == [RecordEpoch("g", 1, 5), Assign("a", 1, 5)]
    [refusal] = node.attach("g", "b", "B", 1, 1, epoch)
    assert refusal[:2] == ("b", "amqp:resource-locked")
    assert "an epoch above 5" in refusal.description
    assert node.owners("g") == [None, "a"]


def test_greater_epoch_steals_the_partition():
    node = groups()
    node.attach("g", "a", "A", 0, 1, 5)
    stolen, recorded, assigned = node.attach("g", "b", "B", 1, 1, 6)
    assert stolen[:2] == ("a", "amqp:link:stolen")
    assert (recorded, assigned) == (RecordEpoch("g", 1, 6), Assign("b", 1, 6))
    assert node.detached("a", 2, is_closed_by_receiver=True) == []
    assert node.owners("g") == [None, "b"]


def test_epoch_steals_from_a_link_that_the_node_assigned_too():
    node = groups(1)
    node.attach("g", "a", "A", 0)
    stolen, _, assigned = node.attach("g", "b", "B", 1, 0, 1)
    assert (stolen.link, assigned) == ("a", Assign("b", 0, 1))


def test_epoch_goes_back_to_zero_where_the_receiver_closes_in_order():
    node = groups()
    node.attach("g", "a", "A", 0, 1, 5)
    assert node.detached("a", 1, is_closed_by_receiver=True) == [RecordEpoch("g", 1, 0)]
    assert node.attach("g", "b", "B", 2, 1) == [Assign("b", 1, 0)]


def test_receiver_without_an_epoch_resets_none_when_it_closes():
    node = groups(1)
    node.attach("g", "a", "A", 0, 0, 5)
    node.detached("a", 1, is_closed_by_receiver=False)
    for partition in (0, None):
        assert node.attach("g", "none", "A", 2, partition) == [Assign("none", 0, 5)]
        assert node.detached("none", 3, is_closed_by_receiver=True) == []
    assert node.attach("g", "late", "A", 4, None, 3) == [Assign("late", 0, 5)]
    assert node.detached("late", 5, is_closed_by_receiver=True) == [], "nor one whose epoch is passed"
    assert node.attach("g", "own", "A", 6, 0, 5) == [Assign("own", 0, 5)]
    assert node.detached("own", 7, is_closed_by_receiver=True) == [RecordEpoch("g", 0, 0)]


def test_epoch_outlives_a_lost_link_and_a_restart():
    node = groups()
    node.attach("g", "a", "A", 0, 1, 5)
    assert node.detached("a", 1, is_closed_by_receiver=False) == []
    for again in (node, groups(epochs={("g", 1): 5, ("g", 7): 3})):
        [refusal] = again.attach("g", "late", "A", 2, 1, 4)
        assert refusal[:2] == ("late", "amqp:resource-locked")
        assert "taken over" in refusal.description
        assert again.attach("g", "same", "A", 3, 1, 5) == [Assign("same", 1, 5)]
        again.detached("same", 4, is_closed_by_receiver=False)
        assert again.attach("g", "none", "A", 5, 1) == [Assign("none", 1, 5)]


@pytest.mark.parametrize("epoch", [-1, 2**64])
def test_epoch_is_an_unsigned_long(epoch):
    [refusal] = groups().attach("g", "a", "A", 0, 0, epoch)
    assert refusal[:2] == ("a", "amqp:invalid-field")


def test_epoch_of_an_assigned_link_is_recorded_if_it_is_greater():
    node = groups(1, {("g", 0): 3})
    assert node.attach("g", "a", "A", 0, None, 2) == [Assign("a", 0, 3)]
    node.detached("a", 1, is_closed_by_receiver=False)
    assert node.attach("g", "b", "A", 2, None, 4) == [RecordEpoch("g", 0, 4), Assign("b", 0, 4)]


# Shared evenly


def test_connection_with_too_many_links_gives_one_to_one_that_waits():
    node = groups(3)
    for link in "abc":
        node.attach("g", link, "A", 0)
    [drain] = node.attach("g", "d", "B", 1)
    assert drain == Drain("c"), "the one that came last"
    assert node.due() == 11
    closed, assigned = node.drained("c", 2)
    assert closed[:2] == ("c", "amqp:link:detach-forced")
    assert "attach again" in closed.description
    assert assigned == Assign("d", 2, 0)


def test_difference_of_one_link_moves_nothing():
    node = groups(1)
    node.attach("g", "a", "A", 0)
    assert node.attach("g", "b", "B", 1) == []


def test_link_that_does_not_settle_in_time_is_closed():
    node = groups(2)
    node.attach("g", "a", "A", 0)
    node.attach("g", "b", "A", 0)
    node.attach("g", "c", "B", 1)
    assert node.tick(10.9) == []
    closed, assigned = node.tick(11)
    assert (closed.link, assigned) == ("b", Assign("c", 1, 0))


def test_freed_partition_goes_to_the_connection_that_has_fewest():
    node = groups(2)
    node.attach("g", "a1", "A", 0)
    node.attach("g", "a2", "A", 0)
    assert node.attach("g", "a3", "A", 1) == []
    assert node.attach("g", "b1", "B", 2) == [Drain("a2")]
    assert node.drained("a2", 3)[1] == Assign("b1", 1, 0)


def test_link_that_named_its_partition_is_not_asked_to_leave():
    node = groups(2)
    node.attach("g", "a", "A", 0, 0)
    node.attach("g", "b", "A", 0, 1)
    assert node.attach("g", "c", "B", 1) == []


def test_link_that_leaves_by_itself_while_it_is_asked_to():
    node = groups(2)
    node.attach("g", "a", "A", 0)
    node.attach("g", "b", "A", 0)
    node.attach("g", "c", "B", 1)
    assert node.detached("b", 2, is_closed_by_receiver=True) == [Assign("c", 1, 0)]
    assert node.drained("b", 3) == []
    assert node.drained("a", 3) == [], "it was not asked to leave"


class GroupMachine(RuleBasedStateMachine):
    """Performs the actions as a node does, and knows of links only what the actions say."""

    links = Bundle("links")

    @initialize(partitions=st.integers(1, 5))
    def start(self, partitions):
        self.settings = AmqpSettings(groups_max=5, group_pending_max=3, group_pending_ms=20_000, group_drain_ms=5_000)
        self.node = Groups(partitions, self.settings, {})
        self.partitions = partitions
        self.now = 0.0
        self.count = 0
        self.containers: dict[int, str] = {}
        self.owners: dict[int, int] = {}
        self.waiting: dict[int, float] = {}
        self.draining: set[int] = set()
        self.asked_for: set[int] = set()
        self.epochs: Counter[int] = Counter()
        self.given: dict[int, int | None] = {}

    def perform(self, actions):
        for action in actions:
            match action:
                case RecordEpoch("g", partition, epoch):
                    self.epochs[partition] = epoch
                case Assign(link, partition, epoch):
                    assert partition not in self.owners, "two owners"
                    assert 0 <= partition < self.partitions
                    assert epoch == self.epochs[partition]
                    assert link in self.containers
                    self.owners[partition] = link
                    self.waiting.pop(link, None)
                case Refuse(link, condition, description):
                    assert link not in self.owners.values()
                    assert condition and description
                    self.forget(link)
                case Drain(link):
                    assert link in self.owners.values()
                    assert link not in self.draining | self.asked_for
                    self.draining.add(link)
                case Close(link, condition, description):
                    assert link in self.owners.values()
                    assert condition and description
                    self.forget(link)

    def forget(self, link):
        self.containers.pop(link, None)
        self.waiting.pop(link, None)
        self.draining.discard(link)
        self.asked_for.discard(link)
        self.owners = {partition: owner for partition, owner in self.owners.items() if owner != link}

    @rule(target=links, container=st.sampled_from("ABC"), epoch=st.none() | st.integers(0, 6))
    def attach(self, container, epoch):
        self.count += 1
        link = self.count
        self.containers[link], self.given[link] = container, epoch
        self.waiting[link] = self.now + 20
        self.perform(self.node.attach("g", link, container, self.now, None, epoch))
        return link

    @rule(target=links, container=st.sampled_from("ABC"), epoch=st.none() | st.integers(0, 6), place=st.integers(0, 4))
    def attach_to_partition(self, container, epoch, place):
        self.count += 1
        link, partition = self.count, place % self.partitions
        before, recorded = self.owners.get(partition), self.epochs[partition]
        self.containers[link], self.given[link] = container, epoch
        self.asked_for.add(link)
        self.perform(self.node.attach("g", link, container, self.now, partition, epoch))
        if before is not None:
            is_stolen = epoch is not None and epoch > recorded
            assert self.owners[partition] == (link if is_stolen else before)
        else:
            assert self.owners.get(partition) == (None if epoch is not None and epoch < recorded else link)
        return link

    @rule(link=consumes(links), in_order=st.booleans())
    def detach(self, link, in_order):
        was_known = link in self.containers
        owned = [partition for partition, owner in self.owners.items() if owner == link]
        self.forget(link)
        actions = self.node.detached(link, self.now, is_closed_by_receiver=in_order)
        assert was_known or not actions
        for partition in owned:
            reset = RecordEpoch("g", partition, 0)
            is_its_own = self.epochs[partition] == self.given[link]
            assert (reset in actions) == (in_order and is_its_own and self.epochs[partition] > 0)
        self.perform(actions)

    @rule(link=links)
    def drain(self, link):
        was_draining = link in self.draining
        actions = self.node.drained(link, self.now)
        assert bool(actions) == was_draining
        self.perform(actions)

    @rule(seconds=st.sampled_from([1.0, 5.0, 20.0]))
    def wait(self, seconds):
        self.now += seconds
        self.perform(self.node.tick(self.now))
        due = self.node.due()
        assert due is None or due > self.now
        assert all(until > self.now for until in self.waiting.values()), "an attach waits too long"

    @invariant()
    def nobody_waits_for_a_free_partition(self):
        assert not self.waiting or len(self.owners) == self.partitions
        assert len(self.waiting) <= self.settings.group_pending_max

    @invariant()
    def node_and_peers_agree(self):
        assert self.node.owners("g") == [self.owners.get(partition) for partition in range(self.partitions)]

    @invariant()
    def nobody_has_two_more_than_one_who_waits(self):
        """Once those that are asked to leave have left, and those who wait have got what they left."""
        staying = [link for link in self.owners.values() if link not in self.draining]
        held = Counter(self.containers[link] for link in staying)
        waiting = sorted(self.waiting)
        for _ in self.draining:
            if waiting:
                served = min(waiting, key=lambda link: held[self.containers[link]])
                waiting.remove(served)
                held[self.containers[served]] += 1
        movable = Counter(self.containers[link] for link in staying if link not in self.asked_for)
        for link in waiting:
            for container in movable:
                assert held[container] - held[self.containers[link]] < 2


def test_links_of_one_group_never_share_a_partition():
    run_state_machine_as_test(GroupMachine)


def test_an_epoch_that_is_raised_is_the_next_one_of_the_partition_that_is_free() -> None:
    node = groups(2, epochs={("G", 0): 7})
    assert node.attach("G", "a", "A", 0.0, raises_epoch=True) == [RecordEpoch("G", 0, 8), Assign("a", 0, 8)]
    assert node.attach("G", "b", "B", 0.0, raises_epoch=True) == [RecordEpoch("G", 1, 1), Assign("b", 1, 1)]
    assert node.attach("G", "c", "C", 0.0, raises_epoch=True) == []
    assert node.detached("a", 1.0, is_closed_by_receiver=False) == [RecordEpoch("G", 0, 9), Assign("c", 0, 9)]
