"""`headwater user`: manages the users of a data directory. A running server applies changes within a second."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ..core.errors import EventLogError, InvalidInput, StateConflict
from ..formats.settings.declaration import toml
from ..server.config.settings import Config
from ..server.users import accounts
from .options import config_option, load_config, setting_options
from .output import examples

if TYPE_CHECKING:
    from ..core.state import StateStore

_CLOSED = "every request is refused; add a user, or allow requests without credentials (headwater user allow-everybody)"


class UserExists(EventLogError):
    """A user of that name already exists."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"user {name!r} already exists; use --replace to set a new password and new rights")


class UserNotFound(EventLogError):
    """There is no user of that name in the data directory."""

    def __init__(self, name: str, data: Path) -> None:
        self.name, self.data = name, data
        super().__init__(
            f"there is no user {name!r} in {data}; to remove a user of the configuration file, edit that file"
        )


@click.group()
def user() -> None:
    """Add, list and remove users.

    Once there is a user, every request needs credentials. Users are stored in the data directory; a running server
    follows within a second. They can also be written to the configuration file (see --print).
    """


@user.command(
    epilog=examples(
        "headwater user add alice --grant 'read,append:orders-*' --grant manage:orders-eu",
        "headwater user add robot --token --grant 'all:*'",
        "headwater user add prometheus --token --grant 'metrics:*'",
    )
)
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    metavar="RIGHTS:PATTERN",
    help="Rights (read, append, manage, metrics or all) on logs whose names match. Repeatable.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input instead of asking for it.")
@click.option("--token", "wants_token", is_flag=True, help="Print a new bearer token instead of asking for a password.")
@click.option("--key", "wants_key", is_flag=True, help="Create a secret key for signed messages and print it (base64).")
@click.option("--replace", is_flag=True, help="Replace the user if it exists.")
@click.option(
    "--print", "only_prints", is_flag=True, help="Print the user for the configuration file instead of storing it."
)
@config_option
@setting_options("data")
def add(
    name: str,
    grants: tuple[str, ...],
    password_stdin: bool,
    wants_token: bool,
    wants_key: bool,
    replace: bool,
    only_prints: bool,
    file: Path | None,
    **flags: object,
) -> None:
    """Add a user.

    The password is prompted for or read from standard input, never given as an argument. Only hashes of passwords and
    tokens are stored; secret keys are stored as they are, to compute signatures.
    """
    config = load_config(file, flags)
    accounts.check_user_name(name)
    its_grants = tuple(map(accounts.read_grant, grants))
    password = _password(password_stdin) if password_stdin or not wants_token else None
    token = accounts.new_token() if wants_token else None
    account = accounts.Account(
        name,
        its_grants,
        password=accounts.hash_password(password) if password is not None else None,
        tokens=(accounts.hash_token(token),) if token else (),
        key=secrets.token_bytes(32) if wants_key else None,
    )
    if only_prints:
        click.echo(f"[users.{toml(name)}]")
        for key, value in account.table.items():
            click.echo(f"{key} = {toml(value)}")
    else:
        with _state(config) as state:
            try:
                state.put(accounts.KIND, name, accounts.encode_account(account), None if replace else 0)
                state.flush()
            except StateConflict:
                raise UserExists(name) from None
        click.echo(f"user {name} may {', '.join(map(accounts.show_grant, its_grants))}", err=True)
    if token:
        click.echo(f"token: {token}", err=only_prints)
    if account.key and not only_prints:
        click.echo(f"key: {base64.b64encode(account.key).decode()}")


@user.command("list", epilog=examples("headwater user list --json"))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
@config_option
@setting_options("data")
def list_(as_json: bool, file: Path | None, **flags: object) -> None:
    """List the users of the data directory and of the configuration."""
    config = load_config(file, flags)
    with _known_state(config) as state:
        stored = [accounts.decode_entry(item) for item in state.items(accounts.KIND)]
        nobody = (
            f"there are no users left: {_CLOSED}"
            if state.had_users()
            else "there are no users: all requests from loopback are allowed"
        )
    found = {account.name: (account, "data directory") for account in stored}
    found |= {name: (account, config.origins[f"users.{name}"]) for name, account in config.users.items()}
    rows = [_Row.of(account, origin) for _, (account, origin) in sorted(found.items())]
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows], indent=2))
    elif not rows:
        click.echo(nobody, err=True)
    else:
        for row in rows:
            click.echo(f"{row.name:20}  {' '.join(row.grants)}  ({', '.join(row.secrets)}; {row.origin})")


@user.command(epilog=examples("headwater user remove alice"))
@click.argument("name")
@config_option
@setting_options("data")
def remove(name: str, file: Path | None, **flags: object) -> None:
    """Remove a user from the data directory."""
    config = load_config(file, flags)
    with _known_state(config) as state:
        if not state.delete(accounts.KIND, name):
            raise UserNotFound(name, config.data)
        state.flush()
        has_users = bool(config.users) or any(True for _ in state.items(accounts.KIND))
    click.echo(f"removed user {name}", err=True)
    if not has_users:
        click.echo(f"it was the last user: {_CLOSED}", err=True)


@user.command("allow-everybody", epilog=examples("headwater user allow-everybody --data /var/lib/headwater"))
@config_option
@setting_options("data")
def allow_everybody(file: Path | None, **flags: object) -> None:
    """Allow requests without credentials from loopback again, after the last user was removed.

    After the last user of a data directory is removed, every request is refused until you run this command. The server
    logs a warning at each start.
    """
    config = load_config(file, flags)
    with _known_state(config) as state:
        names = sorted({name for name, _ in state.items(accounts.KIND)} | set(config.users))
        if names:
            raise InvalidInput(f"users exist ({', '.join(names)}); remove them first", "allow-everybody")
        state.put(*accounts.EVERYBODY, json.dumps({"since": datetime.now(UTC).isoformat(timespec="seconds")}).encode())
        state.keep_had_users(False)
    click.echo(f"{config.data}: requests from loopback need no credentials", err=True)


class _Row(NamedTuple):
    """One user as shown by `list`."""

    name: str
    grants: list[str]
    secrets: list[str]
    """The kinds of secrets that the user has."""
    origin: str

    @staticmethod
    def of(account: accounts.Account, origin: str) -> _Row:
        kinds = {"password": account.password, "token": account.tokens or account.access_tokens, "key": account.key}
        grants = [accounts.show_grant(grant) for grant in account.grants]
        return _Row(account.name, grants, [kind for kind, value in kinds.items() if value], origin)


@contextlib.contextmanager
def _known_state(config: Config) -> Iterator[StateStore]:
    """The state of an existing data directory. Raises StorageUnavailable, and creates nothing, if there is none."""
    from ..storage.state.data_directory import require_data

    if config.storage != "memory":
        require_data(config.data)
    with _state(config) as state:
        yield state


@contextlib.contextmanager
def _state(config: Config) -> Iterator[StateStore]:
    if config.storage == "memory":
        raise InvalidInput(
            "the setting is memory, but users are stored in a data directory; put them into the configuration file",
            "storage",
        )
    from ..storage.state.data_directory import has_data, open_state, refuse_foreign

    if not has_data(config.data):
        refuse_foreign(config.data)
        click.echo(f"{config.data} is a new data directory", err=True)
    with contextlib.closing(open_state(config.data)) as state:
        yield state


def _password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for the password; use --password-stdin, or --token")
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    return password
