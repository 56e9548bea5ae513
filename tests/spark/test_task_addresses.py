"""Which of several addresses a task asks for its slice. No Spark session is needed."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from headwater.core import Event
from headwater.flight.wire import Ticket
from headwater.spark import clients
from headwater.spark.source.options import batch_options
from headwater.spark.source.plan import LogSlice
from headwater.spark.source.slices import read_slice
from headwater.storage.memory import MemoryStore
from tests.flight.members import Member, url_of
from tests.flight.memory_backend import serving


def test_tasks_of_different_processes_read_their_slices_from_different_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    store.create("orders").append([Event("E") for _ in range(3)])
    members = [Member(store), Member(store), Member(store, is_primary=True)]
    with ExitStack() as closing:
        urls = [url_of(closing.enter_context(serving(member))) for member in members]
        options = batch_options(CaseInsensitiveDict({"log": "orders", "url": ",".join(urls), "mapSegments": "false"}))
        for process in (4, 5):
            monkeypatch.setattr(clients.os, "getpid", lambda process=process: process)
            slice = LogSlice(Ticket("orders", after=0, upto=3, schema="spark", columns=options.columns))
            assert sum(batch.num_rows for batch in read_slice(options, options.query, None, slice)) == 3
        for client in [clients._clients.pop(key) for key in list(clients._clients) if key[0] in (4, 5)]:
            client.close()
    assert [member.asked.count("scan") for member in members] == [1, 1, 0]
