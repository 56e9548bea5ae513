"""`headwater events`: shows the notifications of a server as they arrive."""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

import click

from ..client.protocol.handshakes import why_tls_fails
from ..core.errors import EventLogError
from ..core.watch.notification_types import NotificationType
from ..formats.clients.retry import Attempts, ServerUnreachable
from ..formats.settings import client_variables
from ..formats.settings.path_argument import LocalPath
from .output import examples, json_option, show_json, show_time, tell_waiting

DEFAULT_URL = "amqp://127.0.0.1:5672"
DOMAIN = "io.headwater."
SELECTOR = "apache.org:selector-filter:string"
LOOK_S = 0.5
"""The interval for handling interruptions and the connection's heartbeats."""


class ListenerRefused(EventLogError):
    """The server refused the subscription or ended it; the message contains the reason."""


@click.command(
    epilog=examples(
        "headwater events",
        "headwater events --type 'log.*' --type disk.low --log orders",
        "headwater events --filter \"eventType LIKE '%.consumer.%' AND lagEvents > 1000000\" --json",
    )
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only this type, such as log.created or log.*. Repeatable (any).",
)
@click.option(
    "--log", "logs", multiple=True, metavar="LOG", help="Only notifications about this log. Repeatable (any)."
)
@click.option("--filter", "selector", metavar="SELECTOR", help="Only notifications that match this message selector.")
@click.option(
    "--count", type=click.IntRange(min=1), help="Exit after this many notifications.  [default: until interrupted]"
)
@json_option
@click.option("--amqp-url", metavar="URL", envvar=client_variables.AMQP_URL, default=DEFAULT_URL, show_default=True,
              show_envvar=True, help="The server's AMQP port (amqp:// or amqps://).")  # fmt: skip
@click.option("--user", metavar="NAME", envvar=client_variables.USER, show_envvar=True, help="User name.")
@click.option("--password", envvar=client_variables.PASSWORD, show_envvar=True, help="Password; prefer the variable.")
@click.option("--ca-file", metavar="FILE", type=LocalPath(),
              help="Certificates to trust with amqps.  [default: the system's]")  # fmt: skip
@click.option("--no-verify", is_flag=True, help="With amqps, do not check the server's certificate.")
@click.option("--retry-s", metavar="SECONDS", type=click.FloatRange(min=0), default=10.0, show_default=True,
              help="How long to retry the first connection; with 0, also exit when a connection is lost.")  # fmt: skip
def events(
    types: tuple[str, ...],
    logs: tuple[str, ...],
    selector: str | None,
    count: int | None,
    as_json: bool,
    amqp_url: str,
    user: str | None,
    password: str | None,
    ca_file: str | None,
    no_verify: bool,
    retry_s: float,
) -> None:
    """Follow the server's notifications.

    Prints notifications about logs, connections, links, partitions, consumers, refusals, disk, webhooks and logins
    until interrupted. After a lost connection it reconnects and reports that notifications were missed. The reference
    of events lists all types and the attributes that a selector can use.
    """
    wanted = selector_of(types, logs, selector)
    url = with_credentials(amqp_url, user, password)
    listener = NotificationListener(url, wanted, tls_of(ca_file, is_verified=not no_verify), retry_s)
    for attributes in islice(listener, count):
        if as_json:
            show_json(attributes)
        else:
            show_notification(attributes)


def selector_of(types: Sequence[str], logs: Sequence[str], selector: str | None) -> str | None:
    """One message selector for all the given filters; None selects everything. Raises click.UsageError."""
    parts = [f"({selector})"] if selector else []
    if types:
        parts.append(f"eventType IN ({_literals(known for text in types for known in types_of(text))})")
    if logs:
        parts.append(f"log IN ({_literals(logs)})")
    return " AND ".join(parts) or None


def types_of(text: str) -> list[str]:
    """The types that match a pattern, given with or without the domain. Raises click.UsageError."""
    pattern = text if text.startswith(DOMAIN) else DOMAIN + text
    found = [type.value for type in NotificationType if fnmatchcase(type.value, pattern)]
    if not found:
        known = ", ".join(type.value.removeprefix(DOMAIN) for type in NotificationType)
        raise click.UsageError(f"--type: unknown type {text}; expected one of {known}")
    return found


def _literals(texts: Any) -> str:
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def with_credentials(url: str, user: str | None, password: str | None) -> str:
    """The URL with the user name and password, unless it already contains them. Raises click.UsageError."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # its text may contain a part of the password
        has_host = False
    if not has_host or parts.scheme not in ("amqp", "amqps"):
        raise click.UsageError("--amqp-url: expected amqp://HOST:PORT or amqps://HOST:PORT")
    if user and not parts.username:
        netloc = f"{quote(user, safe='')}:{quote(password or '', safe='')}@{parts.netloc}"
        parts = parts._replace(netloc=netloc)
    if parts.username and not parts.password:
        raise click.UsageError(f"--password: {parts.username} needs a password")
    return parts.geturl()


def tls_of(ca_file: str | None, *, is_verified: bool) -> ssl.SSLContext | None:
    """How the server's certificate is verified; None for the system's defaults. Raises click.UsageError."""
    if ca_file is None and is_verified:
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise click.UsageError(f"--ca-file: {ca_file} cannot be loaded: {error}") from None
    if not is_verified:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class NotificationListener:
    """The attributes of each notification, one by one, without end. Raises ListenerRefused, ServerUnreachable."""

    def __init__(self, url: str, selector: str | None, tls: ssl.SSLContext | None, retry_s: float) -> None:
        """The first connection is tried for `retry_s`; a lost connection is retried without limit, unless that is 0."""
        address = urlsplit(url)._replace(query="", fragment="")
        self._shown = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        self._url, self._selector, self._tls, self._retry_s = url, selector, tls, retry_s
        self._attempts = Attempts(within_s=retry_s, on_waiting=tell_waiting)
        self._was_connected = False

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        from ..amqp.protocol.conditions import CONNECTION_FORCED, LINK_DETACH_FORCED, AmqpError

        while True:
            try:
                yield from self._received()
            except AmqpError as error:
                if error.condition not in (CONNECTION_FORCED, LINK_DETACH_FORCED):
                    raise ListenerRefused(str(error)) from None
                self._failed(error)
            except OSError as error:
                self._failed(error)

    def _received(self) -> Iterator[Mapping[str, object]]:
        """The notifications of one connection."""
        from ..amqp.client import Client  # not at the top: the help does not need these imports
        from ..amqp.protocol.types import Described, Symbol

        filters = None if self._selector is None else {"selector": Described(Symbol(SELECTOR), self._selector)}
        with Client(self._url, tls=self._tls) as client:
            receiver = client.receiver("$events", filter=filters)
            receiver.attached()
            if self._was_connected:
                told = f"reconnected to {self._shown}; notifications sent in the meantime were missed"
                click.echo(f"headwater: {told}", err=True)
            else:
                self._was_connected = True
                self._attempts = Attempts(within_s=math.inf if self._retry_s else 0.0, on_waiting=tell_waiting)
            self._attempts.succeeded()
            while True:
                for delivery in receiver.take(1, LOOK_S):
                    delivery.settle()
                    yield delivery.message.application_properties or {}

    def _failed(self, error: Exception) -> None:
        """Wait until the next attempt. Raises ServerUnreachable after the last one."""
        hopeless = why_tls_fails(error, "amqp")
        unreachable = ServerUnreachable(self._shown, hopeless or str(error))
        unreachable.__cause__ = error
        if hopeless:
            raise unreachable
        self._attempts.failed(unreachable)


def show_notification(attributes: Mapping[str, object]) -> None:
    """A notification on one line: time, type, and the rest as `name=value`."""
    rest = dict(attributes)
    type, time = str(rest.pop("eventType", "")), rest.pop("time", None)
    when = show_time(time) if isinstance(time, int) else ""
    pairs = " ".join(f"{click.style(name, fg='green')}={_shown(value)}" for name, value in rest.items())
    click.echo(f"{when}  {click.style(type.removeprefix(DOMAIN), bold=True)}  {pairs}".rstrip())


def _shown(value: object) -> str:
    text = str(value)
    is_bare = text.isprintable() and text and not set(' "=') & set(text)
    return text if is_bare else repr(text)
