"""`headwater events`: the notifications of a server, as they come."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, urlsplit

import click

from ...core.errors import EventLogError
from ...core.notification_types import NotificationType
from .examples import examples
from .output import json_option, show_json, show_time

DEFAULT_URL = "amqp://127.0.0.1:5672"
DOMAIN = "io.headwater."
SELECTOR = "apache.org:selector-filter:string"
LOOK_S = 0.5
"""How often an interruption and the connection's heartbeats have their turn."""


class Refused(EventLogError):
    """The server does not let us listen, or has ended it; the message says why."""


@click.command(
    epilog=examples(
        "headwater events",
        "headwater events --type 'log.*' --type disk.low --log orders",
        "headwater events --filter \"eventType LIKE '%.consumer.%' AND lagEvents > 1000000\" --json",
    )
)
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Only that type, as log.created or log.*; several: any."
)
@click.option("--log", "logs", multiple=True, metavar="LOG", help="Only what is about that log; several: any.")
@click.option("--filter", "selector", metavar="SELECTOR", help="Only what that message selector says of attributes.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many.  [default: until interrupted]")
@json_option
@click.option("--amqp-url", envvar="HEADWATER_AMQP_URL", default=DEFAULT_URL, show_default=True, show_envvar=True,
              help="The server's AMQP port (amqp:// or amqps://).")  # fmt: skip
@click.option("--user", envvar="HEADWATER_USER", show_envvar=True, help="User name.")
@click.option("--password", envvar="HEADWATER_PASSWORD", show_envvar=True, help="Password; best by the variable.")
@click.option("--ca-file", type=click.Path(), help="Certificates to trust with amqps.  [default: the system's]")
@click.option("--no-verify", is_flag=True, help="With amqps, do not check the server's certificate.")
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
) -> None:
    """Follow what happens in the server.

    Logs, connections, links, partitions, consumers, refusals, disk, webhooks, logins: from now on, until interrupted.
    The reference of events has all types and their attributes, which a selector may name.
    """
    wanted = selector_of(types, logs, selector)
    url = with_credentials(amqp_url, user, password)
    for attributes in follow(url, wanted, tls_of(ca_file, is_verified=not no_verify), count):
        if as_json:
            show_json(attributes)
        else:
            show_notification(attributes)


def selector_of(types: Sequence[str], logs: Sequence[str], selector: str | None) -> str | None:
    """One message selector of all that was asked for; None for everything. Raises click.UsageError."""
    parts = [f"({selector})"] if selector else []
    if types:
        parts.append(f"eventType IN ({_literals(known for text in types for known in types_of(text))})")
    if logs:
        parts.append(f"log IN ({_literals(logs)})")
    return " AND ".join(parts) or None


def types_of(text: str) -> list[str]:
    """The names of the types that a pattern stands for, with or without the domain. Raises click.UsageError."""
    pattern = text if text.startswith(DOMAIN) else DOMAIN + text
    found = [type.value for type in NotificationType if fnmatchcase(type.value, pattern)]
    if not found:
        known = ", ".join(type.value.removeprefix(DOMAIN) for type in NotificationType)
        raise click.UsageError(f"--type: no type is called {text}; there are {known}")
    return found


def _literals(texts: Any) -> str:
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def with_credentials(url: str, user: str | None, password: str | None) -> str:
    """The URL with name and password in it, unless it has some. Raises click.UsageError."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # its text may hold a part of the password
        has_host = False
    if not has_host or parts.scheme not in ("amqp", "amqps"):
        raise click.UsageError("--amqp-url: amqp://HOST:PORT or amqps://HOST:PORT is expected")
    if user and not parts.username:
        netloc = f"{quote(user, safe='')}:{quote(password or '', safe='')}@{parts.netloc}"
        parts = parts._replace(netloc=netloc)
    if parts.username and not parts.password:
        raise click.UsageError(f"--password: {parts.username} needs one")
    return parts.geturl()


def tls_of(ca_file: str | None, *, is_verified: bool) -> ssl.SSLContext | None:
    """How a server with TLS is checked; None as the system does. Raises click.UsageError."""
    if ca_file is None and is_verified:
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise click.UsageError(f"--ca-file: {ca_file} cannot be used: {error}") from None
    if not is_verified:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def follow(
    url: str, selector: str | None, tls: ssl.SSLContext | None, count: int | None
) -> Iterator[Mapping[str, object]]:
    """The attributes of each notification. Raises Refused, ServerUnreachable."""
    from ...amqp.client import Client  # not at the top: the help needs none of it
    from ...amqp.protocol.conditions import AmqpError
    from ...amqp.protocol.types import Described, Symbol
    from ...formats.unreachable import ServerUnreachable

    filters = None if selector is None else {"selector": Described(Symbol(SELECTOR), selector)}
    address = urlsplit(url)._replace(query="", fragment="")
    shown = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
    try:
        with Client(url, tls=tls) as client:
            receiver = client.receiver("$events", filter=filters)
            taken = 0
            while count is None or taken < count:
                for delivery in receiver.take(1, LOOK_S):
                    delivery.settle()
                    taken += 1
                    yield delivery.message.application_properties or {}
    except AmqpError as error:
        raise Refused(str(error)) from None
    except (OSError, TimeoutError) as error:
        raise ServerUnreachable(shown, str(error)) from None


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
