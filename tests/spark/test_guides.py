"""The guides to Spark are done as they are written; `tests/docs/stories.py` says how.

By night each of their commands and programs starts a Java of its own, as it does for a reader; by day those of one
page do. The others run in this process, on the session that its tests share: `headwater pipeline` in a shell asks
this process for that.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Listener
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from headwater.cli.main import run
from tests.docs.documents import ROOT, name_of
from tests.docs.stories import SPARK, Block, Story
from tests.docs.test_stories import WITH_SPARK
from tests.night import night

WHOLE_BY_DAY = ROOT / "docs" / "reference" / "spark.md"
"""It has one program."""
WITH_A_MODULE = "pipelines.md"
"""It writes a module that Spark's workers import."""

ASKING = """\
#!{python}
import os, sys
if sys.argv[1:2] == ["pipeline"]:
    from multiprocessing.connection import Client
    variables = {{name: value for name, value in os.environ.items() if name.startswith("HEADWATER_")}}
    with Client({address!r}) as story:
        story.send((sys.argv[1:], variables))
        said, complaint, code = story.recv()
    sys.stdout.write(said)
    sys.stderr.write(complaint)
    sys.exit(code)
from headwater.cli.main import main
main()
"""


class SharedStory(Story):
    """A story whose pipelines and programs run in this process."""

    def __enter__(self) -> SharedStory:
        super().__enter__()
        self._listener = Listener(None, "AF_UNIX")
        command = self.directory / "programs" / "headwater"
        command.write_text(ASKING.format(python=sys.executable, address=self._listener.address))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.close()
        super().__exit__(*exc_info)

    def _python(self, block: Block, where: str) -> None:
        if not SPARK.search(block.code):
            super()._python(block, where)
            return
        code = compile("\n" * block.line + self._here(block.code), where, "exec", dont_inherit=True)
        with (
            patch.dict(os.environ, _of_headwater(self._environment())),
            contextlib.redirect_stdout(io.StringIO()) as said,
        ):
            exec(code, {"__name__": "__main__"})
        self.said = said.getvalue()

    def _command(self, command: list[str], where: str) -> str:
        """Run it in another thread, and in this one, which gets the signals, the pipelines that it asks for."""
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(super()._command, command, where)
            running.add_done_callback(lambda _: self._end())
            while True:
                with self._listener.accept() as asked:
                    if (request := asked.recv()) is None:
                        return running.result()
                    asked.send(_ran(*request))

    def _end(self) -> None:
        with Client(self._listener.address) as story:
            story.send(None)


def _of_headwater(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("HEADWATER_")}


def _ran(arguments: list[str], variables: dict[str, str]) -> tuple[str, str, int]:
    """What the command writes to standard output and to standard error, and its exit code."""
    said, complaint = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, variables), contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
        code = run(arguments)
    return said.getvalue(), complaint.getvalue(), code


@contextlib.contextmanager
def java_in(spark: SparkSession, directory: Path) -> Iterator[None]:
    """Relative paths are below that directory for Java, too."""
    java = spark._jvm
    files = java.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    before = java.System.getProperty("user.dir")

    def work_in(path: str) -> None:
        java.System.setProperty("user.dir", path)
        files.setWorkingDirectory(java.org.apache.hadoop.fs.Path(path))

    work_in(str(directory))
    try:
        yield
    finally:
        work_in(before)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, in which everything runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # where Python finds the modules that a guide makes
    return tmp_path


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "document",
    [pytest.param(each, marks=[] if each == WHOLE_BY_DAY else night) for each in WITH_SPARK],
    ids=name_of,
)
def test_guide_can_be_done_as_it_is_told(document, here):
    with Story(here) as story:
        story.run(document)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", [each for each in WITH_SPARK if each != WHOLE_BY_DAY], ids=name_of)
def test_guide_can_be_done_on_one_session(document, here, own_session, monkeypatch):
    before = set(sys.modules)
    if document.name == WITH_A_MODULE:
        monkeypatch.setitem(own_session.sparkContext.environment, "PYTHONPATH", str(here))
    try:
        with java_in(own_session, here), SharedStory(here) as story:
            story.run(document)
    finally:
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(here)):
                del sys.modules[name]
