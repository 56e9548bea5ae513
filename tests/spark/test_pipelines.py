"""Pipelines as commands: found by name, options from their dataclass, a dry run, and the same from everywhere."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from headwater.cli.main import run
from headwater.core import LogSettings
from headwater.core.errors import InvalidInput
from headwater.core.local import LocalLog
from headwater.flight.client import BulkClient
from headwater.spark import commandline, jobs
from headwater.spark.archive.snapshot import Archive
from headwater.spark.commandline import SCRIPT, command_of, main
from headwater.spark.jobs import project
from headwater.spark.options import InvalidOption
from headwater.spark.pipeline.option import option
from headwater.spark.pipeline.run import Ending, Run, Server, Summary, Target, _Committed
from headwater.spark.pipelines import NoSuchPipeline, Pipeline, load, names
from headwater.spark.source import checkpoints
from headwater.spark.source.options import stream_options
from headwater.storage.memory import MemoryStore
from tests.flight.memory_backend import bulk_server
from tests.night import night
from tests.waiting import eventually

from .conftest import SOURCES, fill
from .processes import descendants

COPY = ["copy", "--from", "orders", "--to", "target", "--checkpoint", "here"]


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Paint:
    colour: Colour = option("Which.", default=Colour.RED)  # noqa: RUF009 - it makes a field
    where: Path = option("Where.")  # noqa: RUF009
    layers: int = option("How many.", default=1, minimum=1, maximum=3)
    share: float | None = option("How much.", default=None, minimum=0)
    is_dry: bool = option("Whether it is dry.", default=False, flag="--dry")
    kind: Literal["oil", "acrylic"] = option("Which kind.", default="oil")
    tags: tuple[str, ...] = option("Tags.", default=())


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Paint, Run, dict[str, str]]]:
    """What the pipeline `paint` was run with: options, run, settings of Spark."""
    return []


@pytest.fixture
def paint(painted: list[Any], monkeypatch: pytest.MonkeyPatch) -> click.Command:
    settings: dict[str, str] = {}

    class NoSpark:
        def stop(self) -> None:
            pass

    def session(name: str, master: str | None, options: dict[str, str], *, hears: object) -> NoSpark:
        settings.update(options, master=master or "")
        return NoSpark()

    def run(spark: NoSpark, options: Paint, run: Run) -> Summary:
        painted.append((options, run, settings))
        run.advance(1000, 10, behind=5)
        return run.summary(litres=3)

    monkeypatch.setattr(commandline, "session", session)
    examples = ("--where wall",)
    return command_of(
        Pipeline("paint", "Paint.", "It paints.", Paint, lambda options, run: ["paint it"], run, examples, True, True)
    )


def test_a_pipeline_of_several_modules_is_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "of_several"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "job.py").write_text(
        '"""Does it."""\n\nfrom headwater.spark.jobs.copy import EXAMPLES, OPTIONS, plan, run\n'
    )
    monkeypatch.setattr(jobs, "__path__", [*jobs.__path__, str(tmp_path)])
    assert "of-several" in names() and load("of-several").summary == "Does it."


@pytest.mark.parametrize("name", names())
def test_every_pipeline_keeps_the_rules(name: str) -> None:
    pipeline = load(name)
    assert pipeline.summary.endswith(".")
    assert pipeline.help
    assert pipeline.examples
    settings = pipeline.settings()
    assert [setting.name for setting in settings] == [field.name for field in fields(pipeline.options)]
    assert all(setting.about.help.endswith((".", "]")) for setting in settings)
    assert pipeline.options.__dataclass_params__.frozen
    for example in pipeline.examples:
        command_of(pipeline).make_context(name, shlex.split(example))


def test_the_help_of_all_pipelines_imports_no_spark() -> None:
    code = (
        "import sys; from headwater.cli.main import run; run(['pipeline', '--help']); run(['pipeline', 'copy', '-h'])"
    )
    code += "; assert not {'pyspark', 'pandas', 'deltalake'} & set(sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in names())


def test_a_read_without_an_archive_and_a_write_load_no_deltalake(url: str, orders: LocalLog) -> None:
    """It takes 280 MiB of address space in each worker, more than `spark.executor.pyspark.memory=1g` leaves."""
    code = f"""if True:
        import sys
        from headwater.spark.sink import data_sink as sink; from headwater.spark.source import data_source as source
        options = dict(url={url!r}, log="orders")
        reader = source.batch_reader(options, source.read_schema(options))
        assert sum(batch.num_rows for slice in reader.partitions() for batch in reader.read(slice)) == 100
        print("deltalake" in sys.modules)
    """
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_the_nearest_pipeline_and_option_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoSuchPipeline, match=r"there is no pipeline 'cpoy'; did you mean copy\?"):
        load("cpoy")
    assert run(["pipeline", "cpoy"]) == 2
    assert "did you mean copy?" in capsys.readouterr().err
    assert run(["pipeline", *COPY, "--on-duplicates", "skip"]) == 2
    assert "--on-duplicate" in capsys.readouterr().err.replace("--on-duplicates", "")


def test_options_have_their_types_and_bounds(paint: click.Command, painted: list[Any]) -> None:
    given = ["--where", "wall", "--colour", "blue", "--layers", "3", "--share", "0.5", "--dry", "--tags", "a",
             "--tags", "b", "--checkpoint", "c"]  # fmt: skip
    assert CliRunner().invoke(paint, given, standalone_mode=False).exception is None
    assert painted[0][0] == Paint(
        colour=Colour.BLUE, where=Path("wall"), layers=3, share=0.5, is_dry=True, tags=("a", "b")
    )
    for bad in (["--layers", "4"], ["--colour", "green"], ["--kind", "chalk"], ["--share", "-1"]):
        assert CliRunner().invoke(paint, [*given, *bad]).exit_code == 2
    assert CliRunner().invoke(paint, ["--checkpoint", "c"]).exit_code == 2  # --where is required


def test_what_all_pipelines_share_reaches_the_run(paint: click.Command, painted: list[Any]) -> None:
    given = ["--where", "wall", "--checkpoint", "c", "--once", "--every-s", "3", "--url", "grpc://h:1", "--user", "u",
             "--master", "local[3]", "--conf", "spark.a=b=c", "--json", "--progress", "none"]  # fmt: skip
    result = CliRunner().invoke(paint, given, env={"HEADWATER_PASSWORD": "p"})
    assert result.exit_code == 0, result.output
    _, run, settings = painted[0]
    assert (run.is_once, run.every_s, run.checkpoint) == (True, 3, "c")
    assert (run.server.url, run.server.user, run.server.password) == ("grpc://h:1", "u", "p")
    assert (settings["master"], settings["spark.a"]) == ("local[3]", "b=c")
    summary = json.loads(result.stdout)
    assert summary.pop("seconds") >= 0
    assert summary == {
        "pipeline": "paint", "ending": "done", "events": 1000, "batches": 1, "behind": 5, "details": {"litres": 3},
    }  # fmt: skip


def test_a_server_of_spark_connect_gets_no_settings_that_it_would_warn_of(
    paint: click.Command, painted: list[Any]
) -> None:
    given = ["--where", "wall", "--checkpoint", "c", "--master", "sc://h:15002", "--conf", "spark.a=b"]
    assert CliRunner().invoke(paint, given, standalone_mode=False).exception is None
    assert painted[0][2] == {"master": "sc://h:15002", "spark.a": "b"}


class Loaded(Exception):
    """With the options of the stream that was loaded."""


class Loading:
    """As much of a session as it takes to see with which options a stream is loaded."""

    _jsparkSession = conf = None

    @property
    def readStream(self) -> Loading:
        return self

    def format(self, name: str) -> Loading:
        return self

    def options(self, **given: str) -> Loading:
        raise Loaded(given)


@pytest.mark.parametrize(
    ("name", "options", "stream"),
    [
        ("copy", {"source": "orders", "target": "target"}, "copy:target"),
        ("copy", {"source": "a", "target": "a", "target_url": "grpc://backup:8815"}, "copy:a@backup:8815"),
        ("aggregate", {"sources": ("orders-*",), "target": "target"}, "aggregate:target"),
        ("metrics", {"log": "orders", "measure": "states", "window": "1h"}, "metrics:states:1h"),
    ],
)
def test_a_pipeline_that_follows_a_log_has_a_name_for_the_server(
    name: str, options: dict[str, Any], stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "to_do", lambda run, source: 0)
    pipeline = load(name)

    def asked(**how: Any) -> str | None:
        with pytest.raises(Loaded) as caught:
            pipeline.run(Loading(), pipeline.options(**options), Run(name, **how))  # type: ignore[arg-type]
        given: dict[str, str] = caught.value.args[0]
        return stream_options(given).stream_name

    assert asked(is_once=False) == stream
    assert asked(is_once=False, stream_name="mine") == "mine"
    assert asked(is_once=True, stream_name="mine") == "mine"
    assert asked(is_once=True) is None, "what comes after the end is no lag"


def test_a_projection_tells_how_far_its_table_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    log = store.create("orders")
    fill(log, 10)
    options = project.Project(
        log="orders", tag="order", fold="tests.spark.folds:totals", table=str(tmp_path / "table"), start=8
    )
    with bulk_server(store) as url:
        run = Run("project", server=Server(url), is_once=False)
        monkeypatch.setattr(project, "_fold", lambda *_: run.stop.ask() or True)
        project.run(Loading(), options, run)  # type: ignore[arg-type]
    assert [(each.name, each.position) for each in log.streams.all()] == [("project:order", 7)]


def test_the_name_of_a_stream_reaches_the_run_and_is_checked_before(paint: click.Command, painted: list[Any]) -> None:
    given = ["--where", "wall", "--checkpoint", "c", "--progress", "none", "--stream-name"]
    assert CliRunner().invoke(paint, [*given, "walls"]).exit_code == 0
    assert painted[0][1].stream_name == "walls"
    refused = CliRunner().invoke(paint, [*given, "x" * 257]).exception
    assert isinstance(refused, InvalidInput) and "--stream-name: expected 1 to 256 characters" in str(refused)


def test_without_json_the_summary_is_for_people(paint: click.Command) -> None:
    result = CliRunner().invoke(paint, ["--where", "wall", "--checkpoint", "c", "--progress", "none"])
    first, second = result.stdout.splitlines()
    assert first.startswith("paint: done, 1,000 events in 1 batches, ")
    assert first.endswith(" s, 5 behind")
    assert second == "  litres: 3"


def test_details_of_several_logs_are_a_list_for_people_and_an_object_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = Summary("archive", Ending.DONE, 3, 2, 1.0, 0, {"archived": {"orders": 2, "shop": 1}})
    commandline._show(summary, False, err=False)
    commandline._show(summary, True, err=False)
    *_, for_people, for_programs = capsys.readouterr().out.splitlines()
    assert for_people == "  archived: orders 2, shop 1"
    assert json.loads(for_programs)["details"] == {"archived": {"orders": 2, "shop": 1}}


@pytest.mark.parametrize(("is_all", "more"), [(True, ""), (False, ", and there are more")])
def test_an_answer_of_rows_is_counted_in_rows(is_all: bool, more: str, capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary("sql", Ending.DONE, 0, 0, 1.0, None, {"rows": 1200, "is_all": is_all})
    commandline._show(summary, False, err=False)
    assert capsys.readouterr().out == f"sql: done, 1,200 rows{more}, 1.0 s\n"


def test_a_dry_run_says_the_plan_and_starts_nothing(paint: click.Command, painted: list[Any]) -> None:
    result = CliRunner().invoke(paint, ["--where", "wall", "--checkpoint", "c", "--dry-run"])
    assert result.stdout == "paint it\n"
    assert painted == []


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--conf", "spark.a"], 1, "--conf: expected KEY=VALUE, got 'spark.a'"),
        (["--conf", "a=b"], 1, "must start with `spark.`, got 'a'"),
        (["--user", "ann"], 2, "--user and --password must be given together"),
        (["--query", "colour=red", "--dry-run"], 1, "query: expected type=TYPE, tag=TAG, exact_tag=TAG, or, all"),
        (["--from", "a log", "--dry-run"], 1, "--from: 'a log' does not match"),
    ],
)
def test_what_does_not_fit_is_told_before_spark_starts(
    given: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COPY, *given], "pipeline") == code
    assert said in capsys.readouterr().err


def test_a_checkpoint_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COPY[:-2], "pipeline") == 2
    assert "--checkpoint DIR is required" in capsys.readouterr().err


def test_the_file_for_spark_submit_is_told_and_is_alone_in_its_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "--script"]) == 0
    assert capsys.readouterr().out.strip() == str(SCRIPT)
    assert [path.name for path in SCRIPT.parent.iterdir() if path.name != "__pycache__"] == [SCRIPT.name]


@pytest.fixture
def logs() -> tuple[MemoryStore, LocalLog, LocalLog]:
    store = MemoryStore()
    orders, target = store.create("orders", LogSettings()), store.create("target", LogSettings())
    fill(orders, 50)
    return store, orders, target


@pytest.mark.usefixtures("own_session")
def test_a_command_runs_a_pipeline_and_tells_why_one_fails(
    logs: tuple[MemoryStore, LocalLog, LocalLog],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, orders, target = logs
    monkeypatch.chdir(tmp_path)
    command = ["pipeline", *COPY[:-1], str(tmp_path / "here"), "--once", "--progress", "json", "--json"]
    elsewhere = ["--to", "nowhere", "--checkpoint", str(tmp_path / "elsewhere")]
    with bulk_server(store) as url:
        assert run([*command, "--url", url]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["ending"], summary["events"], summary["behind"]) == ("done", 50, 0)
        assert [event.event for event in target.read()] == [event.event for event in orders.read()]
        assert run([*command, *elsewhere, "--url", url]) == 1
    said, complaint = capsys.readouterr()
    first, *between, last = complaint.splitlines()
    assert (said, json.loads(first)["message"]) == ("", "starting Spark")
    assert last == "headwater: pipeline copy: there is no log 'nowhere'"
    assert all(json.loads(line)["pipeline"] == "copy" for line in between), between


def test_each_program_of_a_pipeline_takes_its_options(
    logs: tuple[MemoryStore, LocalLog, LocalLog], tmp_path: Path
) -> None:
    """A dry run needs no Java: spark-submit gives its options to the script."""
    store, _, _ = logs
    programs = (["-m", "headwater.cli.main", "pipeline"], ["-m", "headwater.spark.jobs"], [str(SCRIPT)])
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    with bulk_server(store) as url:
        for program in programs:
            command = [sys.executable, *program, *COPY, "--dry-run", "--url", url]
            done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), program
            assert f"log 'orders' on {url}: 50 events, 1 to 50" in done.stdout, program


@night
@pytest.mark.parametrize("program", ["headwater", "module", "spark-submit"])
def test_a_pipeline_runs_from_the_command_as_a_module_and_under_spark_submit(
    program: str, logs: tuple[MemoryStore, LocalLog, LocalLog], tmp_path: Path
) -> None:
    import pyspark

    store, orders, target = logs
    home = Path(pyspark.__file__).parent
    conf = ["--conf", "spark.driver.memory=512m"]
    commands = {
        "headwater": [sys.executable, "-m", "headwater.cli.main", "pipeline", *COPY, "--master", "local[2]", *conf],
        "module": [sys.executable, "-m", "headwater.spark.jobs", *COPY, "--master", "local[2]", *conf],
        "spark-submit": [str(home / "bin" / "spark-submit"), "--master", "local[2]", *conf, str(SCRIPT), *COPY],
    }
    environment = os.environ | {"PYTHONPATH": str(SOURCES), "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    with bulk_server(store) as url:
        command = [*commands[program], "--once", "--json", "--url", url]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=250
        )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["ending"], summary["events"], summary["behind"]) == ("done", 50, 0)
    assert [event.event for event in target.read()] == [event.event for event in orders.read()]


@night
def test_a_pipeline_that_fails_tells_why_in_one_line(
    logs: tuple[MemoryStore, LocalLog, LocalLog], tmp_path: Path
) -> None:
    store, _, _ = logs
    command = [sys.executable, "-m", "headwater.cli.main", "pipeline", *COPY, "--to", "nowhere", "--once",
               "--master", "local[2]", "--conf", "spark.driver.memory=512m"]  # fmt: skip
    with bulk_server(store) as url:
        done = subprocess.run([*command, "--url", url], env=os.environ | {"PYTHONPATH": str(SOURCES)}, cwd=tmp_path,
                              capture_output=True, text=True, check=False, timeout=250)  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    first, *between, last = done.stderr.splitlines()
    assert (first, last) == ("starting Spark", "headwater: pipeline copy: there is no log 'nowhere'")
    assert all(line.startswith("copy: ") for line in between), between  # how far it is, again and again


def test_a_dry_run_of_a_copy_looks_at_both_logs(
    logs: tuple[MemoryStore, LocalLog, LocalLog], capsys: pytest.CaptureFixture[str]
) -> None:
    store, _, _ = logs
    with bulk_server(store) as url:
        assert main([*COPY, "--dry-run", "--url", url], "pipeline") == 0
        assert f"log 'orders' on {url}: 50 events, 1 to 50" in (said := capsys.readouterr().out)
        assert f"log 'target' on {url}, whose newest number is 0" in said
        for log in ("--from", "--to"):
            assert main([*COPY, log, "nowhere", "--dry-run", "--url", url], "pipeline") == 1
            assert "there is no log 'nowhere'" in capsys.readouterr().err


def test_what_a_query_has_committed_counts_though_spark_has_not_said_so(
    logs: tuple[MemoryStore, LocalLog, LocalLog],
) -> None:
    store, _, target = logs
    rows = pa.table({"type": ["T"] * 3, "data": ["{}"] * 3})
    with bulk_server(store) as url, BulkClient(url) as bulk:
        committed = _Committed(Server(url), Target(url, "target"), "query")
        assert committed.since(None) is None
        for batch in range(2):
            bulk.commit("target", "query", batch, [bulk.stage("target", "query", batch, 0, 0, rows).stage])
            assert committed.since(None if batch == 0 else batch - 1) == (batch, 3)
        assert committed.since(1) is None
        assert _Committed(Server(url), Target(url, "target"), "query").since(None) is None  # an earlier run's
    assert target.head() == 6


def test_signals_to_all_processes_are_told_in_words(
    logs: tuple[MemoryStore, LocalLog, LocalLog], tmp_path: Path
) -> None:
    store, _, target = logs
    command = [sys.executable, "-m", "headwater.spark.jobs", *COPY, "--master", "local[2]", "--progress", "json",
               "--conf", "spark.driver.memory=512m", "--every-s", "0.1", "--json"]  # fmt: skip
    with bulk_server(store) as url:
        process = subprocess.Popen([*command, "--url", url], env=os.environ | {"PYTHONPATH": str(SOURCES)},
                                   cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)  # fmt: skip
        try:
            eventually(lambda: target.head() == 50 or process.poll() is not None, within_s=200)
            for pid in (process.pid, *descendants(process.pid)):  # as a supervisor does
                with contextlib.suppress(ProcessLookupError):  # a worker that ended by itself
                    os.kill(pid, signal.SIGTERM)
            said, errors = process.communicate(timeout=100)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode in (0, 130), errors  # between two batches there is nothing to interrupt
    assert json.loads(said)["events"] == 50
    assert all(line.startswith("{") for line in errors.splitlines()), errors
    messages = [json.loads(line) for line in errors.splitlines()]  # no noise of Java's, no trace of a worker's
    assert messages[0]["message"] == "starting Spark"
    assert not [each for each in messages if "refused" in str(each) or "Traceback" in str(each)]


PLACES = [
    ("archive", "table", {"log": ("orders",)}),
    ("archive", "tables", {"log": ("orders",)}),
    ("metrics", "table", {"log": "cne"}),
    ("project", "table", {"log": "orders", "tag": "order", "fold": "shop:order"}),
    ("project", "dump", {"log": "orders", "tag": "order", "fold": "shop:order", "table": "table"}),
    ("report", "to", {"log": "orders"}),
    ("import", "file", {"log": "orders"}),
    ("import", "quarantine", {"log": "orders", "file": ("orders.csv",)}),
    ("import", "work", {"log": "orders", "file": ("orders.csv",)}),
    ("export", "to", {"log": "orders"}),
]


@pytest.mark.parametrize(("pipeline", "name", "others"), PLACES)
def test_a_place_of_a_scheme_that_is_not_served_is_refused(pipeline: str, name: str, others: dict[str, Any]) -> None:
    given: Any = ("s3://bucket/x",) if name == "file" else "s3://bucket/x"
    job = load(pipeline)
    with pytest.raises(
        InvalidInput, match=r"expected a \w+ on this machine, got 's3://bucket/x'; s3:// is not supported"
    ):
        job.plan(job.options(**others, **{name: given}), Run(pipeline))


def test_every_place_of_a_pipeline_is_one_that_was_tested() -> None:
    found = {
        (name, setting.name)
        for name in names()
        for setting in load(name).settings()
        if setting.about.metavar in ("DIR", "FILE")
    }
    assert found == {(pipeline, name) for pipeline, name, _ in PLACES}


@pytest.mark.parametrize("path", ["s3a://bucket/orders", "http://example.org/orders"])
def test_an_archive_of_a_scheme_that_is_not_served_is_refused(path: str) -> None:
    with pytest.raises(InvalidOption, match=r"expected a path or an address with file://, s3://, .*, got '.*://"):
        Archive(path)
