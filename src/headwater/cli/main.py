"""The command `headwater`: finds its subcommands, and turns errors into one line and an exit code. No other module
exits.

Exit codes: 0 done; 1 refused or failed; 2 wrong usage or configuration; 3 the server cannot be reached; 4 the storage
cannot be opened or the disk is full; 5 the storage is damaged; 130 interrupted; 141 the reader of the output has closed
it.
"""

from __future__ import annotations

import difflib
import importlib
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from .. import __version__
from ..core import errors as core
from ..formats.clients.retry import ServerUnreachable
from ..formats.settings.declaration import InvalidArgument, InvalidConfiguration
from ..speedups import BUILD

DONE, REFUSED, USAGE, UNREACHABLE, UNAVAILABLE, DAMAGED, INTERRUPTED, UNREAD = 0, 1, 2, 3, 4, 5, 130, 141


class Entry(NamedTuple):
    """The module of a command and its line in `headwater --help`, so that only the command in use is imported."""

    module: str
    attribute: str
    summary: str


COMMANDS: Mapping[str, Mapping[str, Entry]] = {
    "Events (on a server)": {
        "append": Entry("events", "append", "Append events to a log."),
        "read": Entry("events", "read", "Read the events of a log."),
        "tail": Entry("events", "tail", "Show the newest events, and follow new ones with -f."),
        "query": Entry("events", "query", "Count matching events, with their types and times."),
        "import": Entry("import_", "import_", "Load a file of events into a log."),
        "export": Entry("export", "export", "Write the events of a log to a file."),
        "relay": Entry("relay", "relay", "Append the rows of an outbox table, exactly once."),
    },
    "Logs (on a server)": {
        "logs": Entry("logs", "logs", "List, create, change, trim and delete logs."),
        "consumers": Entry("consumers", "consumers", "List, register and move the reliable consumers of a log."),
        "bench": Entry("bench", "bench", "Benchmark a log."),
    },
    "Pipelines (on Spark)": {
        "pipeline": Entry("pipeline", "pipeline", "Run a pipeline on Spark."),
    },
    "Server": {
        "serve": Entry("serve", "serve", "Run the server."),
        "config": Entry("config", "config", "Show the effective configuration."),
        "events": Entry("notifications", "events", "Follow the server's notifications."),
        "user": Entry("users", "user", "Add, list and remove users."),
        "connections": Entry("peers", "connections", "List and close AMQP connections."),
        "links": Entry("peers", "links", "List and close AMQP links."),
        "groups": Entry("peers", "groups", "List and move AMQP consumer groups, and close their members' links."),
        "manage": Entry("manage", "manage", "Show and change any managed entity by type and name."),
    },
    "Several servers": {
        "home": Entry("home", "home", "Manage the PostgreSQL database shared by replicas."),
    },
    "Data directory": {
        "check": Entry("storage", "check", "Verify a data directory that no server uses, or a BACKUP."),
        "scrub": Entry("scrub", "scrub", "Show the results of the scrub, or start a pass now."),
        "clock": Entry("clock", "clock", "Show whether the system clock is trusted, or accept it."),
        "backup": Entry(
            "storage",
            "backup",
            "Back up a data directory to TARGET, with or without a running server, and verify the copy.",
        ),
        "restore": Entry("storage", "restore", "Restore a BACKUP to a new data directory DIR."),
    },
}
"""All commands, by section of the help."""


class CommandGroup(click.Group):
    """The commands of COMMANDS, each imported when it is used."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _ending_unread():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _ending_unread():
            value = super().invoke(ctx)
            sys.stdout.flush()
            return value

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.Group, which only suggests commands that were imported."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            nearest = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {nearest[0]!r}?" if nearest else ""))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for section in COMMANDS.values():
            if entry := section.get(cmd_name):
                module = importlib.import_module(f".{entry.module}", __package__)
                command: click.Command = getattr(module, entry.attribute)
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in section.items()])


@click.command(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples: `headwater serve` starts a server on this machine; `headwater COMMAND --help` shows more.",
)
@click.version_option(f"{__version__} ({BUILD})", prog_name="headwater")
@click.pass_context
def headwater(ctx: click.Context) -> None:
    """One durable event log that five protocols speak and Spark reads."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """The entry point of the program `headwater`."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # it has been closed
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
    if sys.argv[1:2] == ["serve"]:  # SIGHUP is blocked until the server has a handler: see `hangups`
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    code = run(sys.argv[1:])
    if code == UNREAD:  # end like other programs
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    sys.exit(code)


@contextmanager
def _ending_unread() -> Iterator[None]:
    """If the reader of the output has closed it, end the command with UNREAD; click would end it with 1."""
    try:
        yield
    except BrokenPipeError as error:
        if not _is_unread():
            raise click.ClickException(str(error)) from error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(UNREAD) from None


def _is_unread() -> bool:
    """Whether standard output is a pipe that its reader has closed."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. An error is written as one line to stderr."""
    try:
        code = headwater.main(list(arguments), prog_name="headwater", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("headwater: interrupted", err=True)
        return INTERRUPTED
    except core.EventLogError as error:
        click.echo(f"headwater: {error}{next_step(error)}", err=True)
        return exit_code(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"headwater: {where}{error.strerror or error}", err=True)
        return REFUSED


def next_step(error: core.EventLogError) -> str:
    """What the user can do next, if the error itself cannot know it: the end of its line, or an empty text."""
    option = _URL_OPTIONS.get(error.url.partition("://")[0]) if isinstance(error, ServerUnreachable) else None
    if option is None or not isinstance(error.__cause__, ConnectionRefusedError):
        return ""
    return f"; `headwater serve` starts a server on this machine, {option} names another"


_URL_OPTIONS = {"http": "--url", "http+unix": "--url", "https": "--url", "amqp": "--amqp-url", "amqps": "--amqp-url"}


def exit_code(error: core.EventLogError) -> int:
    """The exit code of an error."""
    if isinstance(error, InvalidArgument | InvalidConfiguration | core.InvalidLogName | core.InvalidQuery):
        return USAGE
    if isinstance(error, core.StorageUnavailable | core.DiskFull):
        return UNAVAILABLE
    if isinstance(error, ServerUnreachable | core.OutcomeUnknown):
        return UNREACHABLE
    return DAMAGED if isinstance(error, core.StorageCorrupted) else REFUSED


if __name__ == "__main__":
    main()
