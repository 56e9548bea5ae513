"""The Python in the documents runs, in an empty directory, block after block of one document."""

from __future__ import annotations

import pytest

from .documents import DOCUMENTS, name_of, python_blocks

WITH_PYTHON = [document for document in DOCUMENTS if next(python_blocks(document), None) is not None]


@pytest.mark.parametrize("document", WITH_PYTHON, ids=name_of)
def test_python_of_the_document_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in python_blocks(document):
        exec(compile(code, str(document), "exec"), names)
