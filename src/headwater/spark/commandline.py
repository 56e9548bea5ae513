"""Builds the command of a pipeline: its own options, the shared ones, and its output.

The same under `headwater pipeline NAME`, `python -m headwater.spark.jobs NAME` and spark-submit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import logging
import os
import pathlib
import sys
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..core.errors import EventLogError, InvalidInput
from ..core.streams import check_stream_name
from ..formats.settings import client_variables
from ..formats.settings.path_argument import LocalPath
from .check_command import NAME as CHECK
from .check_command import check_command
from .options import DEFAULT_URL
from .pipeline.failures import failed, is_sparks
from .pipeline.progress import Progress
from .pipeline.run import Ending, Run, Server, Summary
from .pipelines import NoSuchPipeline, Pipeline, Setting, load, names
from .session.java import keep_py4j_quiet, logging_by
from .session.session import CONNECT, check_options, session

REFUSED, INTERRUPTED = 1, 130
SCRIPT = Path(__file__).parent / "submit" / "headwater_pipeline.py"
QUIET = Path(__file__).parent / "log4j2-quiet.properties"


class PipelineGroup(click.Group):
    """All pipelines. Each is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*names(), " ".join(CHECK)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == " ".join(CHECK):
            return check_command
        return command_of(load(cmd_name)) if cmd_name in names() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if tuple(args[:2]) == CHECK:
            return check_command.name, check_command, args[2:]
        if args and not args[0].startswith("-") and args[0] not in names():
            raise click.UsageError(str(NoSuchPipeline(args[0])), ctx)
        return super().resolve_command(ctx, args)


def command_of(pipeline: Pipeline) -> click.Command:
    """The pipeline as a command."""
    given = [_option(setting) for setting in pipeline.settings()]
    shared = _shared(pipeline.is_stream, pipeline.needs_checkpoint)
    text = f"{pipeline.summary}\n\n{pipeline.help}"
    epilog = "\n".join(
        ("\b", "Examples:", *(f"  headwater pipeline {pipeline.name} {example}" for example in pipeline.examples))
    )

    def invoke(**values: Any) -> int:
        own = {setting.name: _value(setting, values.pop(setting.name)) for setting in pipeline.settings()}
        return _invoke(pipeline, own, **values)

    return click.Command(
        pipeline.name, params=[*given, *shared], callback=invoke, help=text, short_help=pipeline.summary, epilog=epilog
    )


def _option(setting: Setting) -> click.Option:
    if setting.type is bool:
        names = [f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"]
        kind: Any = click.BOOL
    else:
        names, kind = [setting.flag], _kind(setting)
    default: dict[str, Any] = {}
    if not setting.is_required:  # to click, None is a default as well
        default["default"] = setting.default.value if isinstance(setting.default, enum.StrEnum) else setting.default
    return click.Option(
        [setting.name, *names],
        type=kind,
        **default,
        required=setting.is_required,
        multiple=setting.is_repeated,
        metavar=setting.about.metavar,
        help=setting.about.help,
        show_default=setting.default is not None and not setting.is_repeated,
    )


def _kind(setting: Setting) -> click.ParamType[Any]:
    if typing.get_origin(setting.type) is typing.Literal:
        return click.Choice(typing.get_args(setting.type))
    if issubclass(setting.type, enum.StrEnum):
        return click.Choice([member.value for member in setting.type])
    if issubclass(setting.type, pathlib.PurePath):
        return LocalPath(path_type=setting.type)
    if setting.type is int:
        low, high = (None if end is None else int(end) for end in (setting.about.minimum, setting.about.maximum))
        return click.IntRange(low, high)
    if setting.type is float:
        return click.FloatRange(setting.about.minimum, setting.about.maximum)
    return click.STRING


def _value(setting: Setting, given: Any) -> Any:
    is_enum = isinstance(setting.type, type) and issubclass(setting.type, enum.StrEnum)
    return setting.type(given) if is_enum and isinstance(given, str) else given


def _shared(is_stream: bool, needs_checkpoint: bool) -> list[click.Option]:
    options = [
        click.Option(["--url"], metavar="URL", envvar=client_variables.FLIGHT_URL, default=DEFAULT_URL,
                     show_default=True, show_envvar=True,
                     help="The server's Arrow Flight port; several servers of one home, separated by commas."),
        click.Option(["--user"], metavar="NAME", envvar=client_variables.USER, show_envvar=True, help="User name."),
        click.Option(["--password"], envvar=client_variables.PASSWORD, show_envvar=True,
                     help="Password; prefer the variable."),
        click.Option(["--token"], envvar=client_variables.TOKEN, show_envvar=True,
                     help="Bearer token; prefer the variable."),
        click.Option(["--ca-file"], metavar="FILE", type=LocalPath(),
                     help="Certificates to trust.  [default: the system's]"),
        click.Option(["--no-verify"], is_flag=True, help="Do not verify the server's certificate."),
        click.Option(["--master"], help="Where Spark runs: local[2], spark://HOST:7077, k8s://..., yarn, sc://..."
                     "  [default: all cores of this machine]"),
        click.Option(["--conf"], multiple=True, metavar="KEY=VALUE", help="A Spark option. Repeatable."),
        click.Option(["--dry-run"], is_flag=True, help="Only print what would be done."),
        click.Option(["--progress"], type=click.Choice([kind.value for kind in Progress]), default="auto",
                     show_default=True, help="How to show progress on stderr."),
        click.Option(["--json", "as_json"], is_flag=True, help="The summary as JSON, for programs."),
        click.Option(["--trace"], is_flag=True, help="Show Spark's messages and tracebacks."),
    ]  # fmt: skip
    if is_stream:
        options[6:6] = [
            click.Option(["--checkpoint"], metavar="DIR", help="Where the pipeline stores its progress: a directory, "
                         f"or a URL for Spark.{'  [required]' if needs_checkpoint else ''}"),
            click.Option(["--once/--follow", "is_once"], default=False, show_default=True,
                         help="Stop after the current events, or run until stopped."),
            click.Option(["--every-s"], type=click.FloatRange(0), default=1.0, show_default=True,
                         help="Interval between batches with --follow."),
            click.Option(["--stream-name"], metavar="NAME", help="Name under which the server reports its lag, in "
                         "metrics and management.  [default, with --follow: the pipeline and its target]"),
        ]  # fmt: skip
    return options


def _invoke(
    pipeline: Pipeline,
    own: dict[str, Any],
    *,
    url: str,
    user: str | None,
    password: str | None,
    token: str | None,
    ca_file: str | None,
    no_verify: bool,
    master: str | None,
    conf: tuple[str, ...],
    dry_run: bool,
    progress: str,
    as_json: bool,
    trace: bool,
    checkpoint: str | None = None,
    is_once: bool = True,
    every_s: float = 1.0,
    stream_name: str | None = None,
) -> int:
    if (user is None) != (password is None):
        raise click.UsageError("--user and --password must be given together")
    if stream_name is not None:
        check_stream_name(stream_name, "--stream-name")
    server = Server(url, user, password, token, ca_file, not no_verify)
    options = pipeline.options(**own)
    settings = _conf(conf)
    if pipeline.needs_checkpoint and checkpoint is None:
        raise click.UsageError("--checkpoint DIR is required: the pipeline stores its progress there")
    run = Run(
        pipeline.name,
        server=server,
        is_once=is_once,
        every_s=every_s,
        checkpoint=checkpoint,
        stream_name=stream_name,
        progress=Progress.NONE if dry_run else Progress(progress),
    )
    if dry_run:
        for line in pipeline.plan(options, run):
            click.echo(line)
        return 0
    try:
        hears = None if trace else _hearing(run, Progress(progress))
        summary = _run(pipeline, options, run, master, settings if trace else _quiet(settings, master), hears)
    except Exception as error:
        if trace:
            traceback.print_exc()
        raise _one_line(pipeline, error) from None
    _show(summary, as_json, err=pipeline.is_answer)
    return INTERRUPTED if summary.ending is Ending.INTERRUPTED else 0


def _run(
    pipeline: Pipeline,
    options: Any,
    run: Run,
    master: str | None,
    settings: dict[str, str],
    hears: Callable[[str], object] | None,
) -> Summary:
    run.say("starting Spark")
    spark = session(f"headwater {pipeline.name}", master, settings, hears=hears)
    with run:
        try:
            return pipeline.go(spark, options, run)
        finally:
            with contextlib.suppress(Exception):  # its Java may have ended, which was reported
                spark.stop()


def _hearing(run: Run, progress: Progress) -> Callable[[str], object]:
    """Passes messages from Spark's Java and its workers to the progress display, in its format. Passes none after
    giving up.
    """
    say = run.say if progress is not Progress.NONE else lambda line: print(line, file=sys.stderr, flush=True)
    return lambda line: None if run.stop.is_urgent else say(line)


def _conf(given: Sequence[str]) -> dict[str, str]:
    settings = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise InvalidInput(f"expected KEY=VALUE, got {each!r}", "--conf")
        settings[name] = value
    check_options(settings)
    return settings


def _quiet(settings: dict[str, str], master: str | None) -> dict[str, str]:
    """Those settings, and settings that silence Spark's own messages, because the pipeline reports progress and errors
    itself.
    """
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)  # PySpark logs each error as JSON
    keep_py4j_quiet()
    if master is not None and master.startswith(CONNECT):  # its server is running, and does not accept such settings
        return settings
    quiet = {"spark.ui.showConsoleProgress": "false"}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has started Java, and configured its logs
        quiet.update(logging_by(QUIET))
    return {**quiet, **settings}


def _one_line(pipeline: Pipeline, error: Exception) -> Exception:
    if isinstance(error, EventLogError | click.ClickException):
        return error
    return failed(pipeline.name, error) if is_sparks(error) else error


def _show(summary: Summary, as_json: bool, *, err: bool) -> None:
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(summary), ensure_ascii=False), err=err)
        return
    left = "" if summary.behind is None else f", {summary.behind:,} behind"
    details = dict(summary.details)
    amount = f"{summary.events:,} events in {summary.batches:,} batches"
    if "rows" in details:
        more = "" if details.pop("is_all") else ", and there are more"
        amount = f"{details.pop('rows'):,} rows{more}"
    click.echo(f"{summary.pipeline}: {summary.ending}, {amount}, {summary.seconds:,.1f} s{left}", err=err)
    for name, value in details.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {each}" for key, each in value.items())
        click.echo(f"  {name}: {value}", err=err)


def main(arguments: Sequence[str], program: str) -> int:
    """Run a pipeline outside the `headwater` command. Returns the exit code."""
    group = PipelineGroup(
        "pipeline", help="Run a pipeline on Spark.", context_settings={"help_option_names": ["-h", "--help"]}
    )
    try:
        code = group.main(list(arguments), prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except EventLogError as error:
        click.echo(f"{error}", err=True)
        return REFUSED
