"""The Python in the documents runs, in an empty directory, block after block of one document.

Stories (`test_stories.py`) are not among them. Where it speaks to a server, it finds one, with a log `orders`, instead
of the one at the usual address; over AMQP, one of four partitions; over Arrow Flight, none yet.
"""

from __future__ import annotations

import pytest

from headwater.server.commands.output import DEFAULT_URL
from headwater.storage.memory import MemoryStore
from tests.amqp.served import Served
from tests.client.served_memory import ServedMemory
from tests.flight.memory_backend import bulk_server

from .documents import DOCUMENTS, name_of, python_blocks
from .test_stories import STORIES

AMQP_URL = "amqp://localhost"
BULK_URL = "grpc://127.0.0.1:8815"
WITH_PYTHON = [
    document for document in DOCUMENTS if document not in STORIES and next(python_blocks(document), None) is not None
]


@pytest.fixture
def served():
    served = ServedMemory()
    served.store.create("orders")
    yield served
    served.stop()


@pytest.fixture
def messaging():
    with Served() as served:
        served.log("orders", partitions=4)
        yield served


@pytest.fixture
def bulk():
    with bulk_server(MemoryStore()) as url:
        yield url


@pytest.mark.parametrize("document", WITH_PYTHON, ids=name_of)
def test_python_of_the_document_runs(document, served, messaging, bulk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in python_blocks(document):
        here = code.replace(DEFAULT_URL, served.url).replace(AMQP_URL, messaging.url()).replace(BULK_URL, bulk)
        exec(compile(here, str(document), "exec"), names)
