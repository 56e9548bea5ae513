"""What waits for a listener: in order, bounded, and honest about what was lost."""

from __future__ import annotations

import threading

from headwater.core import Bus, Notification, NotificationType
from headwater.management import LOST, NotificationQueue

from ...core.listened import is_listened_to

CREATED, DELETED = NotificationType.LOG_CREATED, NotificationType.LOG_DELETED


class Wakes:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def numbers(taken: list[Notification]) -> list[object]:
    return [each.attributes["partitions"] for each in taken]


def emit(bus: Bus, *partitions: int) -> None:
    for number in partitions:
        bus.emit(CREATED, log="orders", partitions=number)


def test_what_was_told_is_taken_in_order_and_in_pieces() -> None:
    bus = Bus()
    queue = NotificationQueue(bus, Wakes())
    emit(bus, *range(5))
    assert numbers(queue.take(2)) == [0, 1] and not queue.is_empty
    assert numbers(queue.take(9)) == [2, 3, 4] and queue.is_empty
    assert queue.take(9) == []


def test_it_wakes_once_until_everything_was_taken() -> None:
    bus, wakes = Bus(), Wakes()
    queue = NotificationQueue(bus, wakes)
    emit(bus, 1, 2, 3)
    assert wakes.count == 1
    queue.take(1)
    emit(bus, 4)
    assert wakes.count == 1
    queue.take(3)
    emit(bus, 5)
    assert wakes.count == 2


def test_a_listener_that_does_not_keep_up_loses_the_oldest_and_is_told_how_many() -> None:
    bus = Bus()
    queue = NotificationQueue(bus, Wakes(), waiting_max=3)
    emit(bus, *range(10))
    taken = queue.take(9)
    assert numbers(taken) == [7, 8, 9]
    assert [each.attributes.get(LOST) for each in taken] == [7, None, None]
    assert queue.lost_total == 7
    emit(bus, 10)
    assert LOST not in queue.take(1)[0].attributes


def test_what_one_listener_lost_is_no_business_of_another() -> None:
    bus = Bus()
    slow, quick = (NotificationQueue(bus, Wakes(), waiting_max=bound) for bound in (1, 9))
    emit(bus, 1, 2)
    assert slow.take(9)[0].attributes[LOST] == 1
    assert all(LOST not in each.attributes for each in quick.take(9))


def test_a_loss_is_told_with_the_next_one_that_is_accepted() -> None:
    bus = Bus()
    queue = NotificationQueue(bus, Wakes(), accepts=lambda each: each.attributes["partitions"] == 9, waiting_max=2)
    emit(bus, *range(5))
    assert queue.take(9) == [] and queue.is_empty
    emit(bus, 9)
    (taken,) = queue.take(9)
    assert taken.attributes[LOST] == 3


def test_what_is_not_accepted_takes_no_room_from_what_is_where_nothing_can_be_taken() -> None:
    bus, wakes = Bus(), Wakes()
    queue = NotificationQueue(
        bus, wakes, accepts=lambda each: int(str(each.attributes["partitions"])) > 9, waiting_max=2
    )
    for noise in range(5):
        emit(bus, 10 + noise, *[noise] * 1)
        queue.look()
        assert queue.is_looked_at and not queue.is_empty and wakes.count == noise + 1
    emit(bus, 15, 16, 17)
    queue.look()
    taken = queue.take(9)
    assert numbers(taken) == [16, 17] and queue.is_empty
    assert [each.attributes.get(LOST) for each in taken] == [6, None]
    assert queue.lost_total == 6


def test_types_that_are_not_asked_for_take_no_room() -> None:
    bus = Bus()
    queue = NotificationQueue(bus, Wakes(), [DELETED], waiting_max=1)
    bus.emit(DELETED, log="orders", head=1)
    emit(bus, 1, 2, 3)
    (taken,) = queue.take(9)
    assert taken.type is DELETED and LOST not in taken.attributes


def test_it_looks_no_further_than_there_is_time() -> None:
    bus, looked = Bus(), list[Notification]()
    queue = NotificationQueue(bus, lambda: None, accepts=lambda each: bool(looked.append(each)))
    emit(bus, *range(10))
    queue.look(lambda: False)
    assert queue.take(1, goes_on=lambda: len(looked) < 4) == [] and len(looked) == 4 and not queue.is_empty


def test_only_so_many_are_looked_at_in_one_go() -> None:
    bus, looked = Bus(), []

    def accepts(each: Notification) -> bool:
        looked.append(each)
        return False

    queue = NotificationQueue(bus, Wakes(), accepts=accepts)
    emit(bus, *range(10))
    assert queue.take(1, looks_max=4) == [] and len(looked) == 4 and not queue.is_empty


def test_what_is_closed_listens_no_more() -> None:
    bus = Bus()
    queue = NotificationQueue(bus, Wakes())
    emit(bus, 1)
    queue.close()
    emit(bus, 2)
    assert queue.take(9) == [] and not is_listened_to(bus, CREATED)


def test_between_threads_nothing_is_lost_uncounted_and_nobody_sleeps_on_what_waits() -> None:
    bus, awake = Bus(), threading.Event()
    queue = NotificationQueue(bus, awake.set, waiting_max=50)
    seen: list[Notification] = []
    total = 4 * 3000

    def consume() -> None:
        while sum(1 + int(each.attributes.get(LOST, 0)) for each in seen) < total:
            assert awake.wait(30)
            awake.clear()
            while taken := queue.take(7):
                seen.extend(taken)

    consumer = threading.Thread(target=consume)
    emitters = [threading.Thread(target=emit, args=(bus, *range(3000))) for _ in range(4)]
    for thread in (consumer, *emitters):
        thread.start()
    for thread in (*emitters, consumer):
        thread.join(60)
        assert not thread.is_alive()
    assert sum(1 + int(each.attributes.get(LOST, 0)) for each in seen) == total
    assert len(seen) + queue.lost_total == total
