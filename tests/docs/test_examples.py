"""The Python in the documents runs, in an empty directory, block after block of one document.

Where it speaks to a server, it finds one, with a log `orders`, instead of the one at the usual address.
"""

from __future__ import annotations

import pytest

from headwater.server.commands.output import DEFAULT_URL
from tests.client.served_memory import ServedMemory

from .documents import DOCUMENTS, name_of, python_blocks

WITH_PYTHON = [document for document in DOCUMENTS if next(python_blocks(document), None) is not None]


@pytest.fixture
def served():
    served = ServedMemory()
    served.store.create("orders")
    yield served
    served.stop()


@pytest.mark.parametrize("document", WITH_PYTHON, ids=name_of)
def test_python_of_the_document_runs(document, served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in python_blocks(document):
        exec(compile(code.replace(DEFAULT_URL, served.url), str(document), "exec"), names)
