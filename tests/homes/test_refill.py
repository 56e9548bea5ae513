"""A home that went back gets what only a copy has, with its numbers; what is given up instead is exported first."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.core import LogSettings
from headwater.core.errors import StorageUnavailable
from headwater.homes import refill as refill_module
from headwater.homes.postgres.home import PostgresHome
from headwater.homes.postgres.members import Member
from headwater.homes.postgres.schema import set_promotion
from headwater.homes.postgres.servers import ServerReport
from headwater.homes.refill import Refilled, refill
from headwater.homes.stopped_copy import StoppedCopy
from headwater.storage import Engine
from headwater.storage.catalog.directories import RESTORE_JUMP
from headwater.storage.frames.frame_log import Term
from headwater.storage.home import surplus
from headwater.storage.home.surplus import Surplus, add
from headwater.storage.home.witness import HELD_NAME, Evidence, Witness
from headwater.storage.segments.meta import Meta, read_meta
from headwater.storage.state.journal import NAME

from ..storage.builders import change, crashed
from .postgres_server import fresh_home
from .test_engine import Server, contents
from .test_engine import add as append
from .test_following import Replica
from .test_servers import LEASE_MS, command

TABLES = ("log", "frame", "lease", "member")


class Scene:
    """A home with the copy a of its last primary, and a database that can go back to where it was."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self.home = PostgresHome(url)

    @property
    def copy(self) -> Path:
        """The data directory of the last primary."""
        return self.directory / "a"

    def serve(self, name: str = "a") -> Server:
        """Begin a term with that copy, which becomes a member."""
        server = Server(self.url, self.directory / name)
        self.enter(name)
        return server

    def enter(self, name: str) -> None:
        """What a server reports of its copy."""
        evidence = Witness(self.directory / name).evidence()
        assert evidence is not None
        self.home.enter_member(Member(name, evidence, self.home.kept_heads().history))

    def keep(self) -> None:
        """The standby has what is there now."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS kept CASCADE; CREATE SCHEMA kept")
            for table in TABLES:
                connection.execute(f"CREATE TABLE kept.{table} AS TABLE headwater.{table}")

    def go_back(self, *, is_promoted: bool = True) -> None:
        """The standby is promoted; or a snapshot of the database's machine is restored, which does not show."""
        with psycopg.connect(self.url, autocommit=True) as connection, connection.transaction():
            for table in TABLES:
                connection.execute(f"DELETE FROM headwater.{table}")
                connection.execute(f"INSERT INTO headwater.{table} OVERRIDING SYSTEM VALUE TABLE kept.{table}")
            connection.execute("UPDATE headwater.lease SET until = 'epoch'")
            if is_promoted:
                connection.execute("UPDATE headwater.lease SET timeline = timeline - 1")
                connection.execute("UPDATE headwater.member SET timeline = timeline - 1")

    def refill(self, name: str = "a") -> Refilled:
        return refill(self.home, self.directory / name, name)

    def close(self) -> None:
        self.home.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(fresh_home(), tmp_path)
    yield made
    made.close()


@pytest.fixture
def ahead(scene: Scene) -> Scene:
    """The copy a has five orders, another log, one without events and a consumer; the home has three orders."""
    server = scene.serve()
    append(server.orders, 3)
    scene.keep()
    server.orders.register_consumer("who", "it")
    append(server.orders, 2, begin=3)
    server.orders.acknowledge("who", "it", 4)
    append(server.engine.create("bills", LogSettings(partitions=2)), 4)
    server.engine.create("empty")
    server.close()
    scene.go_back()
    return scene


def test_what_only_a_copy_has_is_there_again_with_its_numbers_and_incarnations(ahead: Scene) -> None:
    incarnation = meta_of(ahead, "orders").incarnation
    done = ahead.refill()
    assert done.obstacle == ""
    added = [(each.name, each.after, each.last, each.size) for each in done.added]
    assert added[:-1] == [("bills", 0, 4, 4), ("empty", 0, 0, 0), ("orders", 3, 5, 2)]
    assert done.added[-1].name == NAME
    for name in ("a", "b"):  # an empty copy has all of it too
        server = ahead.serve(name)
        assert contents(server.orders) == [b"0", b"1", b"2", b"3", b"4"]
        assert server.engine.open("bills").head() == 4 and server.engine.open("empty").head() == 0
        assert server.engine.settings_of("bills").partitions == 2
        assert [each.acknowledged for each in server.orders.consumers()] == [4]
        assert server.engine.incarnation_of("orders") == incarnation
        server.close()


def test_a_home_that_was_refilled_is_believed_once_every_member_has_compared(ahead: Scene) -> None:
    evidence = Witness(ahead.copy).evidence()
    assert evidence is not None
    elsewhere = Member("b", evidence._replace(id="copy-b", held=evidence.held._replace(number=0)))
    ahead.home.enter_member(elsewhere)
    done = ahead.refill()
    assert done.obstacle == "b has not compared its copy with this database"
    ahead.home.enter_member(elsewhere._replace(compared=ahead.home.kept_heads().history))
    assert ahead.home.standing().is_vouched
    assert ahead.refill() == Refilled([], "")


@pytest.mark.parametrize("promotion", ["ask", "managed"])
def test_every_member_compares_its_copy_after_a_refill_though_the_history_did_not_change(
    scene: Scene, promotion: str
) -> None:
    with psycopg.connect(scene.url, autocommit=True) as connection:
        set_promotion(connection, promotion)
    server = scene.serve()
    report_replica(scene)
    append(server.orders, 1)
    scene.keep()
    append(server.orders, 1, begin=1)
    server.close()
    scene.go_back(is_promoted=False)
    assert scene.refill().obstacle == "b has not compared its copy with this database"  # it may have been the primary
    report_replica(scene)
    assert scene.home.standing().is_vouched
    assert contents(scene.serve().orders) == [b"0", b"1"]


STEPS = [(PostgresHome, each) for each in ("begin_marked", "fence", "create", "commit", "enter_member", "end_marked")]


def interrupted(scene: Scene, at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a refill was interrupted before its step of that number."""
    counting = itertools.count(1)

    def stopping(act: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object, **named: object) -> object:
            if next(counting) == at:
                raise KeyboardInterrupt
            return act(*given, **named)

        return step

    with monkeypatch.context() as stopped:
        for owner, name in [*STEPS, (Witness, "hold")]:
            stopped.setattr(owner, name, stopping(getattr(owner, name)))
        try:
            scene.refill()
        except KeyboardInterrupt:
            return True
    return False


def report_replica(scene: Scene) -> None:
    """The server b runs, and has seen the terms of the home."""
    evidence = Evidence("copy-b", 1, 2, "boot", seen=scene.home.kept_heads().heads["$state"].term, held=Term(0, 0))
    scene.home.enter_member(Member("b", evidence, scene.home.kept_heads().history))


def test_a_refill_that_was_interrupted_anywhere_is_repeated(ahead: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surplus, "FETCHED_BYTES", 1)  # each frame is a commit
    steps = 0
    while interrupted(ahead, steps + 1, monkeypatch):
        steps += 1
        report_replica(ahead)
        assert not ahead.home.standing().is_vouched, steps
    assert steps > 5
    report_replica(ahead)
    assert ahead.home.standing().is_vouched
    for name in ("a", "b"):
        server = ahead.serve(name)
        assert contents(server.orders) == [b"0", b"1", b"2", b"3", b"4"]
        assert server.engine.open("bills").head() == 4
        server.close()


def go_on(scene: Scene) -> None:
    """Another server believes the promoted standby, and appends."""
    with psycopg.connect(scene.url, autocommit=True) as connection:
        set_promotion(connection, "managed")
    server = Server(scene.url, scene.directory / "b")
    append(server.orders, 1, begin=9)
    server.close()


def test_a_home_that_goes_on_with_other_events_is_left_alone(ahead: Scene) -> None:
    go_on(ahead)
    before = ahead.home.heads(), ahead.home.standing()[:6]
    with pytest.raises(StorageUnavailable) as refused:
        ahead.refill()
    assert "log orders ends with 4 in the home, and only the copy contains the 2 entries after 3, up to 5" in str(
        refused.value
    )
    assert "headwater home accept-loss --data" in str(refused.value)
    assert (ahead.home.heads(), ahead.home.standing()[:6]) == before


def test_a_copy_that_cannot_prove_that_it_has_all_gives_what_it_has_and_no_more(ahead: Scene) -> None:
    (ahead.copy / HELD_NAME).unlink()  # its machine was started again, say
    done = ahead.refill()
    assert done.added and "another copy may have more" in done.obstacle
    assert ahead.home.heads()[meta_of(ahead, "orders").segments_id].number == 5
    assert not ahead.home.standing().is_vouched


def meta_of(scene: Scene, name: str) -> Meta:
    return read_meta(next((scene.copy / "logs").glob(f"{name}.*")))


def test_a_member_that_saw_a_newer_term_keeps_a_home_from_being_believed(ahead: Scene) -> None:
    evidence = Witness(ahead.copy).evidence()
    assert evidence is not None
    newer = evidence.held._replace(number=7, nonce=1)
    compared = ahead.home.kept_heads().history
    ahead.home.enter_member(Member("b", evidence._replace(id="copy-b", seen=newer, held=newer), compared))
    assert "another copy may have more" in ahead.refill().obstacle
    refilled = ahead.home.standing().term
    for held in (newer, refilled):  # its server ran since, or it was refilled from that copy
        ahead.home.enter_member(Member("b", evidence._replace(id="copy-b", seen=refilled, held=held), compared))
        assert "another copy may have more" in ahead.refill().obstacle
    ahead.home.enter_member(Member("b", evidence._replace(id="copy-b", seen=refilled), compared))
    assert "another copy may have more" in ahead.refill().obstacle  # it had seen the newer one before


@pytest.mark.parametrize("more", [0, 1], ids=["nothing-more", "more"])
@pytest.mark.parametrize("has_run", [False, True], ids=["stopped", "ran"])
def test_the_copy_of_the_last_primary_ends_what_another_copy_could_not_prove(
    scene: Scene, more: int, has_run: bool
) -> None:
    server = scene.serve()
    append(server.orders, 3)
    scene.keep()
    append(server.orders, 2, begin=3)
    replica = Replica(scene.url, scene.directory / "b")
    append(server.orders, more, begin=5)
    server.close()
    if not more:
        replica.follow()
    replica.close()
    scene.go_back()
    assert "another copy may have more" in scene.refill("b").obstacle
    if has_run:
        Witness(scene.copy).see(scene.home.standing().term)
        scene.enter("a")
    done = scene.refill()
    assert bool(done.added) == bool(more), done
    assert done.obstacle == "b has not compared its copy with this database"
    scene.home.forget_member("b")
    assert scene.home.standing().is_vouched
    assert len(contents(scene.serve().orders)) == 5 + more


def test_a_refill_is_refused_where_it_would_be_wrong(ahead: Scene, tmp_path: Path) -> None:
    ahead.home.tell_of(ServerReport("c", {}, "replica", 0, None, None, "", "1", 2))
    with pytest.raises(StorageUnavailable, match="server c is running; stop all servers"):
        ahead.refill()
    ahead.home.leave()
    with pytest.raises(StorageUnavailable, match="is not a copy of this home; pass the data directory"):
        ahead.refill("nothing")
    assert not (tmp_path / "nothing").exists()
    ahead.home.mark("gone")
    ahead.home.accept(0)
    with pytest.raises(StorageUnavailable, match="the loss was already accepted"):
        ahead.refill()


def test_no_home_is_refilled_while_two_of_its_hosts_take_writes(ahead: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ahead.home.heads(), ahead.home.standing()[:6]
    monkeypatch.setattr(PostgresHome, "writable_hosts", lambda self: (["db-1:5432", "db-2:5432"], []))
    with pytest.raises(StorageUnavailable, match="db-1:5432 and db-2:5432 accept writes"):
        ahead.refill()
    assert (ahead.home.heads(), ahead.home.standing()[:6]) == before


def test_a_home_is_not_refilled_while_its_declaration_does_not_hold(scene: Scene) -> None:
    server = scene.serve()
    append(server.orders, 1)
    with psycopg.connect(scene.url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.home SET promotion = 'waited-for'")
        connection.execute("UPDATE headwater.lease SET is_waited_for = true")  # as no standby is named now
    scene.keep()
    append(server.orders, 1, begin=1)
    server.close()
    scene.go_back(is_promoted=False)
    assert scene.home.standing().is_weakened
    for way in (scene.refill, scene.home.begin_term):
        with pytest.raises(StorageUnavailable, match="commits no longer wait for every named standby"):
            way()


def gone_on_elsewhere(scene: Scene) -> None:
    """The copy a has two orders that the home lacks; the loss was accepted while it was down, and another went on."""
    server = scene.serve("as it was")
    append(server.orders, 3)
    scene.keep()
    append(server.orders, 2, begin=3)
    crashed(server.directory, scene.copy)
    server.close()
    scene.go_back()
    scene.home.mark("gone")
    scene.home.accept(0)
    other = Server(scene.url, scene.directory / "b")
    append(other.orders, 1, begin=9)
    other.close()


def files(directory: Path, pattern: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob(pattern) if path.is_file()}


def outlived(scene: Scene) -> None:
    """The home has forgotten what comes next in the copy a."""
    server = scene.serve("as it was")
    append(server.orders, 5)
    crashed(server.directory, scene.copy)
    append(server.orders, 5, begin=5)
    server.home.forget(meta_of(scene, "orders").segments_id, 9)
    server.close()


@pytest.mark.parametrize(
    "happen, why",
    [(gone_on_elsewhere, "its home has a new incarnation"), (outlived, "ends with 5, but its home starts with 9")],
)
def test_a_copy_that_cannot_be_followed_is_left_as_it_is(
    scene: Scene, happen: Callable[[Scene], None], why: str
) -> None:
    happen(scene)
    logs = scene.copy / "logs"
    before = files(logs, "*.log")
    with pytest.raises(StorageUnavailable, match=f"{why}.*; it was left unchanged.*headwater backup"):
        StoppedCopy(scene.home, scene.copy)
    with pytest.raises(StorageUnavailable, match=f"{why}.*; it was left unchanged.*headwater backup"):
        scene.refill()
    assert before and files(logs, "*.log") == before
    command("backup", "--data", str(scene.copy), str(scene.directory / "backup"))  # as the message says
    command("restore", str(scene.directory / "backup"), str(scene.directory / "restored"))
    with Engine(scene.directory / "restored", maintains=False) as restored:
        assert contents(restored.open("orders")) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_damaged_journal_of_a_copy_is_left_as_it_is(ahead: Scene) -> None:
    for path in (ahead.copy / "journal").rglob("*.log"):
        change(path, path.read_bytes().rindex(b"bills"), b"spoil")
    before = files(ahead.copy, "*.log")
    with pytest.raises(StorageUnavailable, match="; it was left unchanged"):
        ahead.refill()
    assert before and files(ahead.copy, "*.log") == before


def test_what_is_given_up_is_listed_and_exported_and_can_be_imported(ahead: Scene) -> None:
    target = ahead.directory / "given-up"
    told = accept(ahead, target)
    assert f"orders: 2 events, numbered 4 to 5: discarded; exported to {target}/orders.ndjson" in told
    assert f"bills: 4 events, numbered 1 to 4: discarded; exported to {target}/bills.ndjson" in told
    assert "log empty, which has no events: discarded" in told
    assert "changes of users, consumers, positions and settings, numbered" in told
    assert "a is no longer a member" in told and "move " in told
    assert sorted(each.name for each in target.iterdir()) == ["bills.ndjson", "orders.ndjson"]
    exported = [json.loads(line) for line in (target / "orders.ndjson").read_text().splitlines()]
    assert [(each["event"]["id"], each["sequence_number"]) for each in exported] == [("id-3", 4), ("id-4", 5)]
    server = ahead.serve("b")
    assert contents(server.orders) == [b"0", b"1", b"2"]
    append(server.orders, 1, begin=9)
    assert server.orders.head() == RESTORE_JUMP + 1
    server.close()


def accept(scene: Scene, target: Path, expected: int = 0) -> str:
    return command("home", "accept-loss", "--yes", "--home", scene.url, "--home-lease-ms", LEASE_MS, "--data",
                   str(scene.copy), "--export", str(target), expected=expected)  # fmt: skip


@pytest.mark.parametrize("is_promoted", [True, False], ids=["promoted", "snapshot"])
def test_what_a_forgotten_copy_has_is_exported_before_the_loss_is_accepted(scene: Scene, is_promoted: bool) -> None:
    server = scene.serve()
    append(server.orders, 3)
    scene.keep()
    append(server.orders, 2, begin=3)
    server.close()
    scene.go_back(is_promoted=is_promoted)
    evidence = Witness(scene.copy).evidence()
    assert evidence is not None
    scene.home.enter_member(Member("a", evidence, ahead="the copy of orders ends with 5, but the home ends with 3"))
    known = "no server may append: a is ahead: the copy of orders ends with 5, but the home ends with 3"
    assert known in command("home", "forget", "a", "--home", scene.url)
    target = scene.directory / "given-up"
    told = accept(scene, target)
    assert f"orders: 2 events, numbered 4 to 5: discarded; exported to {target}/orders.ndjson" in told
    assert "accepted; " in told and scene.home.losses() == 1
    again = scene.directory / "again"
    told = accept(scene, again)
    assert "nothing to accept" in told and f"exported to {again}/orders.ndjson" in told
    other = Server(scene.url, scene.directory / "b")  # gives all logs new incarnations
    append(other.orders, 1, begin=9)
    assert other.orders.head() == RESTORE_JUMP + 1
    other.close()
    late = scene.directory / "late"
    assert f"exported to {late}/orders.ndjson" in accept(scene, late)


def test_what_a_refill_added_before_it_was_given_up_is_exported_too(
    ahead: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_but_the_state(found: Surplus, told: Callable[[int], None]) -> None:
        if found.name == NAME:
            raise KeyboardInterrupt
        add(found, told)

    with monkeypatch.context() as stopped, pytest.raises(KeyboardInterrupt):
        stopped.setattr(refill_module, "add", all_but_the_state)
        ahead.refill()
    target = ahead.directory / "given-up"
    told = accept(ahead, target)
    assert "bills: 4 events" in told and "orders: " not in told
    server = ahead.serve("b")
    assert contents(server.orders) == [b"0", b"1", b"2", b"3", b"4"]


def test_nothing_is_accepted_where_what_is_given_up_cannot_be_exported(ahead: Scene) -> None:
    target = ahead.directory / "given-up"
    target.mkdir()
    (target / "orders.ndjson").write_text("mine")
    assert "not empty" in accept(ahead, target, expected=1)
    assert ahead.home.losses() == 0
    (target / "orders.ndjson").unlink()
    assert "accepted; " in accept(ahead, target)


def test_a_copy_that_is_known_to_be_ahead_is_exported_or_forgotten_by_name(ahead: Scene) -> None:
    evidence = Witness(ahead.copy).evidence()
    assert evidence is not None
    ahead.home.enter_member(Member("b", evidence._replace(id="copy-b"), ahead=f"log {NAME}: the copy has more"))
    target = ahead.directory / "given-up"
    refused = accept(ahead, target, expected=1)
    assert "the copy of b is ahead of the home" in refused and "headwater home forget b" in refused
    assert f"exported to {target}/orders.ndjson" in refused
    assert ahead.home.losses() == 0
    command("home", "forget", "b", "--home", ahead.url)
    assert "accepted; " in accept(ahead, ahead.directory / "again")
