"""How a group's partitions are spread over connections: which connection has the most, and which waiting connection has
the fewest. Each query is logarithmic in the number of connections, because a group may have a thousand partitions and
as many waiting links. A heap entry carries the number of links that its connection had at that time. A first entry with
an outdated number is pushed again with the current one. As far as it matters, numbers of waiting connections only grow,
and numbers of givers only shrink: a connection that gave up a link has at least one less than the maximum, and no link
is moved for such a connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace

Link = Hashable
Connection = Hashable
Held = Counter[Connection]
"""The number of links of each connection."""


class Waiting:
    """Waiting links. The next one belongs to the connection with the fewest links; among equals, the one that has
    waited longest is next.
    """

    def __init__(self, held: Held, links: Iterable[tuple[Link, Connection]]) -> None:
        """`held` is updated."""
        self._held = held
        self._heap = [(held[connection], number, connection, link) for number, (link, connection) in enumerate(links)]
        heapify(self._heap)

    def fewest(self) -> int | None:
        """How many links the next one's connection has; None if none waits."""
        heap, held = self._heap, self._held
        while heap:
            count, number, connection, link = heap[0]
            if held[connection] == count:
                return count
            heapreplace(heap, (held[connection], number, connection, link))
        return None

    def take(self) -> Link | None:
        """Remove the next link, and count it for its connection. Returns None if no link waits."""
        if self.fewest() is None:
            return None
        _, _, connection, link = heappop(self._heap)
        self._held[connection] += 1
        return link


def moved(held: Held, movable: Iterable[tuple[Link, Connection]], waiting: Waiting) -> Iterator[Link]:
    """The links whose partitions move to waiting links, until no connection has two more than a waiting one.

    A link is taken from the connection that has the most; among equals, the first. Its newest link is moved.
    """
    links: dict[Connection, list[Link]] = {}
    for link, connection in movable:
        links.setdefault(connection, []).append(link)
    heap = [(-held[connection], place, connection) for place, connection in enumerate(links)]
    heapify(heap)
    while heap and (fewest := waiting.fewest()) is not None:
        count, place, connection = heap[0]
        if not links[connection]:
            heappop(heap)
        elif count != -held[connection]:
            heapreplace(heap, (-held[connection], place, connection))
        elif held[connection] - fewest < 2:
            return
        else:
            waiting.take()
            held[connection] -= 1
            yield links[connection].pop()
