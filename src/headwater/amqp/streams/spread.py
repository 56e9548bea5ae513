"""How the partitions of a group are spread over connections: which one has most, and which waiting one has fewest.

Each question costs the logarithm of how many there are: a group may have a thousand partitions, and as many links that
wait. An entry of a heap has the number of links that its connection had then. A first entry with an old number comes in
again with the new one. Numbers of waiting connections only grow, numbers of givers only shrink, as far as that counts:
a connection that gave has one less than the most at least, and no link is moved for one that has so many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace

Link = Hashable
Connection = Hashable
Held = Counter[Connection]
"""How many links each connection has."""


class Waiting:
    """Links that wait. Next is that of the connection with the fewest; of several such, the one that waited longest."""

    def __init__(self, held: Held, links: Iterable[tuple[Link, Connection]]) -> None:
        """`held` is kept up to date."""
        self._held = held
        self._heap = [(held[connection], number, connection, link) for number, (link, connection) in enumerate(links)]
        heapify(self._heap)

    def fewest(self) -> int | None:
        """How many links the next one's connection has; None: none waits."""
        heap, held = self._heap, self._held
        while heap:
            count, number, connection, link = heap[0]
            if held[connection] == count:
                return count
            heapreplace(heap, (held[connection], number, connection, link))
        return None

    def take(self) -> Link | None:
        """The next link, which its connection has from now on; None: none waits."""
        if self.fewest() is None:
            return None
        _, _, connection, link = heappop(self._heap)
        self._held[connection] += 1
        return link


def moved(held: Held, movable: Iterable[tuple[Link, Connection]], waiting: Waiting) -> Iterator[Link]:
    """The links to move to waiting ones, until no connection has two more than a waiting one.

    A link is taken from the connection that has the most; of several such, the first. Its newest link is moved.
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
