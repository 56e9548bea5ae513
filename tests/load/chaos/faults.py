"""What happens to servers of a home, their network and their database: a function each, which returns when it is over.

None of them waits until somebody serves again: the run does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from .balancer import Balancer
from .database import Database
from .members import LEASE_MS, Member

LEASE_S = LEASE_MS / 1000


class Scene:
    """All that can fail."""

    def __init__(self, members: list[Member], balancer: Balancer, database: Database, chance: Random) -> None:
        self.members, self.balancer, self.database, self.chance = members, balancer, database, chance
        self.faults: list[str] = []

    def primary(self) -> Member:
        """The server that serves, or served last."""
        place = self.balancer.primary
        return self.members[place if place is not None else 0]

    def wait(self, least_s: float, most_s: float) -> None:
        """Let that much time pass."""
        time.sleep(self.chance.uniform(least_s, most_s))

    def use(self) -> None:
        """Lead all servers to the database that is the primary now."""
        for member in self.members:
            member.proxy.target = self.database.primary.port
            member.proxy.cut()


def kill(scene: Scene) -> None:
    """The primary is killed, and begins again: at once, or when another has its place; with or without its copy."""
    primary = scene.primary()
    primary.kill()
    if scene.chance.random() < 0.3:
        primary.forget()
    if scene.chance.random() < 0.7:
        scene.wait(0, 2 * LEASE_S)
    primary.start()


def pause(scene: Scene) -> None:
    """The primary sleeps, for less than its lease or for longer; its clients may stay with it."""
    primary = scene.primary()
    scene.balancer.keeps_old = scene.chance.random() < 0.5
    primary.pause()
    scene.wait(0.3 * LEASE_S, 3 * LEASE_S)
    primary.go_on()
    if scene.balancer.keeps_old:
        time.sleep(1)
        scene.balancer.keeps_old = False
        scene.balancer.cut()


def stop(scene: Scene) -> None:
    """The primary ends in order, and begins again."""
    primary = scene.primary()
    if (code := primary.stop()) != 0:
        scene.faults.append(f"server {primary.name} ended in order with exit code {code}")
    primary.start()


def kill_all(scene: Scene) -> None:
    """All servers are killed, and begin again."""
    for member in scene.members:
        member.kill()
    for member in scene.members:
        member.start()


def cut(scene: Scene) -> None:
    """Connections to the database end, some times in a row."""
    for _ in range(scene.chance.randrange(1, 6)):
        scene.primary().proxy.cut()
        scene.wait(0, 0.2)


def cut_off(scene: Scene) -> None:
    """The primary does not reach the database: nothing comes through, or connections are refused."""
    proxy = scene.primary().proxy
    if scene.chance.random() < 0.5:
        proxy.stop()
        scene.wait(0.2 * LEASE_S, 3 * LEASE_S)
        proxy.go_on()
    else:
        proxy.is_refusing = True
        proxy.cut()
        scene.wait(0.2 * LEASE_S, 3 * LEASE_S)
        proxy.is_refusing = False


def slow(scene: Scene) -> None:
    """The way to the database takes long."""
    for member in scene.members:
        member.proxy.delay_s = scene.chance.choice((0.01, 0.05, 0.2))
    scene.wait(LEASE_S, 2 * LEASE_S)
    for member in scene.members:
        member.proxy.delay_s = 0.0


def crash_database(scene: Scene) -> None:
    """All of the database is killed, and begins again."""
    scene.database.primary.kill()
    scene.wait(0, 2 * LEASE_S)
    scene.database.primary.start()


def restart_database(scene: Scene) -> None:
    """An administrator restarts the database."""
    scene.database.primary.stop()
    scene.database.primary.start()


def pause_database(scene: Scene) -> None:
    """The database sleeps."""
    scene.database.primary.pause()
    scene.wait(0.3 * LEASE_S, 4 * LEASE_S)
    scene.database.primary.go_on()


def promote(scene: Scene) -> None:
    """The database is lost, under load; the standby that each commit waited for is promoted."""
    scene.database.add_standby(is_synchronous=True)
    scene.wait(1, 2)
    scene.database.promote()
    scene.use()


def promote_and_kill(scene: Scene) -> None:
    """The same, and the primary of the home is killed with it."""
    scene.database.add_standby(is_synchronous=True)
    scene.wait(1, 2)
    primary = scene.primary()
    primary.kill()
    scene.database.promote()
    scene.use()
    primary.start()


def hang_standby(scene: Scene) -> None:
    """The standby hangs, so that no commit ends; then it goes on."""
    scene.database.add_standby(is_synchronous=True)
    assert scene.database.standby is not None
    scene.database.standby.pause()
    scene.wait(0.5 * LEASE_S, 4 * LEASE_S)
    scene.database.standby.go_on()
    scene.database.lose_standby_in_order()


Fault = Callable[[Scene], None]
FIRST: tuple[Fault, ...] = (kill, pause, crash_database, promote, cut_off, stop)
"""These come first, in that order."""
EVERY: tuple[Fault, ...] = (
    *(kill, pause, stop, kill_all, cut, cut_off, slow),
    *(crash_database, restart_database, pause_database, promote, promote_and_kill, hang_standby),
)
