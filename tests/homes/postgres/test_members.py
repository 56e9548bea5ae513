"""Whether a home that changed lacks nothing is decided by its members, in the statement that gives the lease."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.lease import IDENTIFIER
from headwater.homes.postgres.members import Member
from headwater.homes.postgres.schema import set_promotion
from headwater.storage.frames.frame_log import Term
from headwater.storage.home.port import NO_HISTORY, History
from headwater.storage.home.witness import Evidence

from ..postgres_server import fresh_home, shared_server

Connection = psycopg.Connection[tuple[Any, ...]]
NO_TERM = Term(0, 0)


class Scene:
    """A home in which the copy a held the newest term, b saw it, and whose database then changed."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.home, self.connection = PostgresHome(url), connection
        self.term = self.home.begin_term()
        [[self.now]] = connection.execute(f"SELECT {IDENTIFIER}").fetchall()
        self.history = History(self.home.kept_heads().history.timeline, self.now)
        self.enter("a", held=self.term)
        self.enter("b")
        self.change()

    def enter(
        self,
        name: str,
        *,
        id: str | None = None,
        seen: Term | None = None,
        held: Term = NO_TERM,
        compared: History | None = None,
        ahead: str = "",
    ) -> None:
        """A member says what its copy can prove."""
        said = Evidence(id or f"copy-{name}", 1, 2, "boot", seen or self.term, held)
        self.home.enter_member(Member(name, said, compared or self.history, ahead))

    def change(self, timeline: int | None = None, identifier: str = "another") -> None:
        """The lease was given last by another database than this one."""
        before = self.history.timeline + 1 if timeline is None else timeline
        self.connection.execute("UPDATE headwater.lease SET timeline = %s, identifier = %s", (before, identifier))

    def obstacle(self) -> str:
        """Why no lease is given; empty if one would be. What is told and what is done are the same."""
        self.connection.execute("UPDATE headwater.lease SET until = 'epoch'")
        told = self.home.standing()
        given = self.home.try_lease("c", {}, 9, 60)
        if given is not None:  # as if that had not been asked
            self.connection.execute("UPDATE headwater.lease SET number = %s, nonce = %s, until = 'epoch'", self.term)
            self.change()
        assert (given is not None) == told.is_vouched == (told.obstacle == "")
        return told.obstacle


@pytest.fixture
def connection() -> Iterator[Connection]:
    with psycopg.connect(fresh_home(), autocommit=True) as connected:
        yield connected


@pytest.fixture
def scene(connection: Connection) -> Iterator[Scene]:
    made = Scene(shared_server().url, connection)
    yield made
    made.home.close()


def test_a_home_is_proved_when_every_copy_was_compared_and_the_last_primarys_has_all(scene: Scene) -> None:
    assert scene.obstacle() == ""


def test_a_copy_that_did_not_compare_leaves_it_unproved(scene: Scene) -> None:
    for compared in (NO_HISTORY, scene.history._replace(timeline=99), scene.history._replace(identifier="another")):
        scene.enter("b", compared=compared)
        assert scene.obstacle() == "b has not compared its copy with this database"
    assert scene.home.forget_member("b")
    assert not scene.home.forget_member("b")
    assert scene.obstacle() == ""


def test_a_copy_that_may_lack_some_of_the_newest_term_is_no_witness(scene: Scene) -> None:
    lacking = f"no known copy contains all of term {scene.term.number}, the last one"
    for held in (NO_TERM, scene.term._replace(number=scene.term.number - 1), scene.term._replace(nonce=5)):
        scene.enter("a", held=held)
        assert scene.obstacle() == lacking
    scene.enter("a", held=scene.term)
    assert scene.obstacle() == ""


def test_a_copy_that_begins_again_takes_the_place_of_its_row_unless_the_home_changed(scene: Scene) -> None:
    scene.enter("b", compared=NO_HISTORY)
    scene.enter("b", id="a wiped one")
    assert scene.obstacle() == "b (an earlier copy) has not compared its copy with this database"
    assert [each.name for each in scene.home.members()] == ["a", "b", "b"]
    scene.change(scene.history.timeline, scene.now)
    scene.enter("b", id="a wiped one")
    assert [each.evidence.id for each in scene.home.members()] == ["copy-a", "a wiped one"]


def test_a_copy_that_is_ahead_contradicts_whatever_was_declared(scene: Scene) -> None:
    scene.enter("b", ahead="log orders: the copy has 5, its home 3")
    for value in ("ask", "waited-for", "managed"):
        set_promotion(scene.connection, value)
        scene.change(identifier=scene.now)
        assert scene.obstacle() == "b is ahead: log orders: the copy has 5, its home 3"
        assert not scene.home.standing().may_be_proved


def test_evidence_of_a_loss_remains_when_its_member_is_forgotten(scene: Scene) -> None:
    scene.change(scene.history.timeline, scene.now)  # a snapshot of the database's machine changes neither
    scene.enter("b", ahead="log orders: the copy has 5, its home 3")
    scene.enter("c", compared=NO_HISTORY)
    scene.home.forget_member("c")
    assert scene.home.standing().went_back == ""
    scene.home.forget_member("b")
    obstacle = scene.home.standing().obstacle
    assert obstacle.startswith("b is ahead: log orders: the copy has 5, its home 3; b was removed from the members")
    assert scene.home.try_lease("c", {}, 9, 60) is None


def test_a_term_that_the_database_does_not_know_contradicts(scene: Scene) -> None:
    number = scene.term.number
    scene.enter("b", seen=Term(number + 2, 7))
    assert scene.obstacle() == f"b has seen term {number + 2}, but the newest here is {number}"
    scene.change(scene.history.timeline, scene.now)  # a snapshot of the database's machine changes neither
    assert scene.home.try_lease("c", {}, 9, 60) is None
    scene.change()
    scene.enter("b", seen=Term(number, 7))
    assert scene.obstacle() == f"b has seen a different term {number} than this database"
    scene.enter("b")
    scene.connection.execute("UPDATE headwater.log SET term = %s", (number + 1,))
    assert f"$state has term {number + 1}, but the newest here is {number}" in scene.obstacle()


@pytest.mark.parametrize(
    "value, is_waited_for, is_same, is_believed",
    [
        ("ask", True, True, False),
        ("waited-for", True, True, True),
        ("waited-for", False, True, False),
        ("waited-for", True, False, False),
        ("managed", False, True, True),
        ("managed", False, False, False),
    ],
)
def test_what_is_declared_counts_where_nothing_is_proved(
    scene: Scene, value: str, is_waited_for: bool, is_same: bool, is_believed: bool
) -> None:
    scene.enter("b", compared=NO_HISTORY)
    set_promotion(scene.connection, value)
    scene.connection.execute("UPDATE headwater.lease SET is_waited_for = %s", (is_waited_for,))
    scene.change(identifier=scene.now if is_same else "another")
    scene.connection.execute("UPDATE headwater.lease SET until = 'epoch'")
    assert scene.home.standing().is_vouched == is_believed
    assert (scene.home.try_lease("c", {}, 9, 60) is not None) == is_believed


def test_a_database_that_is_believed_gives_the_lease_to_a_copy_that_was_compared_with_it(scene: Scene) -> None:
    scene.enter("a", held=scene.term, compared=NO_HISTORY)
    set_promotion(scene.connection, "managed")
    scene.change(identifier=scene.now)
    assert scene.home.standing().is_vouched
    assert scene.home.try_lease("a", {}, 9, 60, member="copy-a") is None  # it may have seen a newer term since
    scene.enter("a", held=scene.term)
    assert scene.home.try_lease("a", {}, 9, 60, member="copy-a") is not None


def test_a_declaration_after_a_change_leaves_what_copies_prove(scene: Scene) -> None:
    scene.enter("b", compared=NO_HISTORY)
    set_promotion(scene.connection, "waited-for")
    assert scene.obstacle() == "b has not compared its copy with this database"
    scene.enter("b")
    assert scene.obstacle() == ""


def test_who_is_no_member_gets_no_lease(scene: Scene) -> None:
    scene.connection.execute("UPDATE headwater.lease SET until = 'epoch'")
    assert scene.home.try_lease("c", {}, 9, 60, member="copy-c") is None
    scene.enter("c")
    assert scene.home.try_lease("c", {}, 9, 60, member="copy-c") is not None


def test_an_accepted_loss_forgets_those_that_did_not_compare_and_counts_above_all(scene: Scene) -> None:
    scene.enter("b", compared=NO_HISTORY, seen=Term(70, 1))
    scene.enter("c", ahead="something")
    assert scene.home.accept(0) == ["b", "c"]
    assert [each.name for each in scene.home.members()] == ["a"]
    assert scene.home.standing().term.number == 71
    assert scene.home.try_lease("a", {}, 9, 60, member="copy-a") is not None


def test_what_is_no_news_is_not_written(scene: Scene) -> None:
    def versions() -> list[tuple[Any, ...]]:
        return scene.connection.execute("SELECT xmin::text, name FROM headwater.member ORDER BY name").fetchall()

    before = versions()
    scene.enter("b")
    assert versions() == before
    scene.enter("b", seen=Term(0, 0))
    assert versions() != before
