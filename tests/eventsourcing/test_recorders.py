"""The recorder tests of `eventsourcing` itself, at each place where a log may be, and what they do not ask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBQueryItem
from eventsourcing.dcb.persistence import DCBInfrastructureFactory
from eventsourcing.dcb.tests import DCBRecorderTestCase
from eventsourcing.persistence import (
    DataError,
    InfrastructureFactoryError,
    IntegrityError,
    OperationalError,
    PersistenceError,
    ProgrammingError,
)
from eventsourcing.utils import Environment
from tests.eventsourcing.places import PLACES

from headwater.client import connect
from headwater.core.errors import AppendConditionFailed
from headwater.eventsourcing import HeadwaterFactory, HeadwaterRecorder

MODULE = {"PERSISTENCE_MODULE": "headwater.eventsourcing"}


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with PLACES[request.param]() as url:
        yield url


@pytest.fixture
def recorder(url: str) -> Iterator[HeadwaterRecorder]:
    factory = DCBInfrastructureFactory.construct({**MODULE, "HEADWATER_URL": url})
    assert isinstance(factory, HeadwaterFactory)
    with factory:
        yield factory.dcb_recorder()
    factory.close()


def tagged(*tags: str) -> DCBQuery:
    return DCBQuery([DCBQueryItem(tags=list(tags))])


class TestTheirOwnCases:
    """Those that each recorder of theirs runs, by their names there."""

    def test_append_read(self, recorder: HeadwaterRecorder) -> None:
        DCBRecorderTestCase("_test_append_read")._test_append_read(recorder)

    def test_append_subscribe(self, recorder: HeadwaterRecorder) -> None:
        DCBRecorderTestCase("_test_append_subscribe")._test_append_subscribe(recorder)


class TestAppends:
    def test_of_those_that_race_one_is_first(self, recorder: HeadwaterRecorder) -> None:
        def register(number: int) -> bool:
            try:
                recorder.append([DCBEvent("Registered", b"%d" % number, ["name:ann"])], condition)
            except IntegrityError:
                return False
            return True

        condition = DCBAppendCondition(tagged("name:ann"))
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(register, range(40))) == 1
        assert len(list(recorder.read(tagged("name:ann")))) == 1

    def test_a_tag_is_one_text_and_no_key(self, recorder: HeadwaterRecorder) -> None:
        recorder.append([DCBEvent("A", b"", ["order:17", "order:17"])])
        assert list(recorder.read(tagged("order"))) == []
        recorder.append([DCBEvent("B", b"", ["order"])], DCBAppendCondition(tagged("order")))
        assert [found.event for found in recorder.read(tagged("order"))] == [DCBEvent("B", b"", ["order"])]

    def test_an_item_that_asks_for_nothing_is_for_all(self, recorder: HeadwaterRecorder) -> None:
        recorder.append([DCBEvent("A", b"")])
        query = DCBQuery([DCBQueryItem(types=["B"]), DCBQueryItem()])
        assert [found.position for found in recorder.read(query)] == [1]
        with pytest.raises(IntegrityError) as failed:
            recorder.append([DCBEvent("A", b"")], DCBAppendCondition(query))
        assert isinstance(failed.value.__cause__, AppendConditionFailed)

    def test_what_is_wrong_is_theirs_to_catch(self, recorder: HeadwaterRecorder) -> None:
        with pytest.raises(ProgrammingError, match="got none"):
            recorder.append([])
        with pytest.raises(DataError, match="type"):
            recorder.append([DCBEvent("", b"")])
        with pytest.raises(ProgrammingError, match="limit"):
            recorder.read(limit=-1)


class TestSubscriptions:
    def test_who_waits_is_let_go_by_a_stop(self, recorder: HeadwaterRecorder) -> None:
        seen: list[int] = []
        with recorder.subscribe(tagged("a")) as subscription:
            thread = threading.Thread(target=lambda: seen.extend(each.position for each in subscription))
            thread.start()
            recorder.append([DCBEvent("A", b"", ["b"]), DCBEvent("A", b"", ["a"])])
            while not seen:
                thread.join(0.001)
        thread.join()
        assert seen == [2]

    def test_it_is_entered_once(self, recorder: HeadwaterRecorder) -> None:
        with recorder.subscribe() as subscription, pytest.raises(ProgrammingError):
            subscription.__enter__()


class TestFactories:
    def test_a_log_in_a_directory_is_there_again_and_shared_in_the_process(self, tmp_path: Path) -> None:
        env = {"HEADWATER_URL": (tmp_path / "data").as_uri(), "HEADWATER_LOG": "orders"}
        first, second = HeadwaterFactory(env), HeadwaterFactory(env)
        first.dcb_recorder().append([DCBEvent("A", b"1")])
        assert [each.event.data for each in second.dcb_recorder().read()] == [b"1"]
        first.close()
        first.close()
        second.dcb_recorder().append([DCBEvent("A", b"2")])
        second.close()
        third = HeadwaterFactory(env)
        assert [each.event.data for each in third.dcb_recorder().read()] == [b"1", b"2"]
        third.close()

    def test_an_application_has_variables_of_its_own(self) -> None:
        with PLACES["server"]() as url:
            env = Environment("Lending", {"HEADWATER_URL": url, "LENDING_HEADWATER_LOG": "library"})
            factory = HeadwaterFactory(env)
            factory.dcb_recorder().append([DCBEvent("A", b"")])
            factory.close()
            with connect(url) as server:
                assert server.logs() == ["library"]

    def test_no_log_is_made_where_that_is_not_wanted(self, url: str) -> None:
        env = {"HEADWATER_URL": url, "HEADWATER_CREATE_LOG": "no"}
        if url == "memory:":
            assert HeadwaterFactory(env).dcb_recorder().read().head is None
            return
        with pytest.raises(OperationalError, match="there is no log 'events'"):
            factory = HeadwaterFactory(env)
            try:
                factory.dcb_recorder().read()
            finally:
                factory.close()

    @pytest.mark.parametrize("wrong", ["ftp://host", "data", "http://ann:secret@host"])
    def test_a_url_that_is_none_is_told(self, wrong: str) -> None:
        with pytest.raises((InfrastructureFactoryError, PersistenceError)) as told:
            HeadwaterFactory({"HEADWATER_URL": wrong})
        assert "secret" not in str(told.value)
