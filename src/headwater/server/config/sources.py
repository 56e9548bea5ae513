"""Configuration sources: defaults, then `headwater.toml`, then `HEADWATER_*`, then flags; later ones win.

Every error names the key, its place, and - for an unknown key - the nearest known one.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import InvalidInput
from ...core.settings import LogSettings, check_log_name
from ...formats.settings.client_variables import CLIENT_VARIABLES
from ...formats.settings.declaration import InvalidConfiguration, refuse
from ...speedups import VARIABLE as NO_EXTENSIONS_VARIABLE
from ..users.accounts import Account
from .settings import DEFAULT_LOG, LOG_READERS, REMOVED, SECTIONS, SETTINGS, Config, Setting

FILE_NAME = "headwater.toml"
CONFIG_VARIABLE, LOGS_VARIABLE = "HEADWATER_CONFIG", "HEADWATER_LOGS"
LOG_FLAG = "--log"
_OF_SERVICE = re.compile(
    r"HEADWATER_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:ADDR|PORT|PROTO))?)",
    re.ASCII,
)
_ADDRESS_OF_SERVICE = re.compile(r"(?:tcp|udp|sctp)://")
_KNOWN: Mapping[str, Setting] = {**SETTINGS, **REMOVED}


def load(
    flags: Mapping[str, object],
    *,
    logs: Sequence[str] = (),
    file: Path | None = None,
    environment: Mapping[str, str],
) -> Config:
    """The effective configuration.

    `flags` are the given flags by key (`http.port`); `logs` are the values of `--log NAME[:PARTITIONS]`. `file` must
    exist; without it HEADWATER_CONFIG names one, else `headwater.toml` in the working directory is read if it exists.
    Raises InvalidConfiguration, with a line for each setting that is wrong.
    """
    given = _Given()
    if (path := _file(file, environment)) is not None:
        _take_file(given, path)
    _take_environment(given, environment)
    for key, value in flags.items():
        with given.noting():
            setting = _KNOWN[key]
            given.take(setting, value, setting.flag)
    for text in logs:
        with given.noting():
            _take_log(given, text, LOG_FLAG)
    config = _build(given)
    given.problems += [each for each in _contradictions(config) if each.where not in given.wrong]
    refuse(given.problems)
    return config


def _contradictions(config: Config) -> Iterator[InvalidConfiguration]:
    """Settings that lack another one."""
    if (config.tls.certificate is None) != (config.tls.key is None):
        missing = "tls.key" if config.tls.key is None else "tls.certificate"
        yield InvalidConfiguration("not set, but TLS requires both tls.certificate and tls.key", missing)
    if config.tls.client_ca is not None and config.tls.key is None:
        yield InvalidConfiguration("client certificates require TLS: set tls.certificate and tls.key", "tls.client_ca")
    if config.cne.client_certificates and config.tls.client_ca is None:
        yield InvalidConfiguration(
            "client certificates cannot be verified: set tls.client_ca", "cne.client_certificates"
        )
    if (config.cne.webhook_certificate is None) != (config.cne.webhook_key is None):
        missing = "cne.webhook_key" if config.cne.webhook_key is None else "cne.webhook_certificate"
        yield InvalidConfiguration("not set, but webhooks require both the certificate and its key", missing)


@dataclass(slots=True)
class _Given:
    """The settings found so far."""

    values: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, dict[str, object]] = field(default_factory=dict)
    users: dict[str, Account] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    problems: list[InvalidConfiguration] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    """The keys of settings whose value is wrong: others do not lack them."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note the problem, and continue with the next setting."""
        try:
            yield
        except InvalidConfiguration as error:
            self.problems.append(error)

    def take(self, setting: Setting, value: object, origin: str, where: str = "", base: Path | None = None) -> None:
        try:
            read = setting.read(value)
        except ValueError as error:
            self.wrong.add(setting.key)
            raise InvalidConfiguration(str(error), where or origin) from None
        if setting.key in REMOVED:
            self.removed[setting.key] = origin
            return
        self.values[setting.key] = base / read if base is not None and isinstance(read, Path) else read
        self.origins[setting.key] = origin

    def take_log_setting(self, log: str, name: str, value: object, origin: str, where: str) -> None:
        try:
            read = LOG_READERS[name](value)
            LogSettings(**{name: read})  # type: ignore[arg-type]  # it checks its types itself
        except (ValueError, InvalidInput) as error:
            problem = error.problem if isinstance(error, InvalidInput) else str(error)
            raise InvalidConfiguration(problem, where) from None
        self.logs[log][name] = read
        self.origins[f"logs.{log}.{name}"] = origin


def _file(file: Path | None, environment: Mapping[str, str]) -> Path | None:
    if file is None and CONFIG_VARIABLE in environment:
        file = Path(environment[CONFIG_VARIABLE])
    if file is not None:
        return file
    return Path(FILE_NAME) if Path(FILE_NAME).is_file() else None


def _take_file(given: _Given, path: Path) -> None:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfiguration(f"cannot be read: {error.strerror}", str(path)) from None
    except UnicodeDecodeError as error:
        raise InvalidConfiguration(f"is not UTF-8: {error.reason} at byte {error.start}", str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfiguration(f"is not TOML: {error}", str(path)) from None
    for name, value in tables.items():
        with given.noting():
            if name == "logs":
                _take_logs(given, value, path)
            elif name == "users":
                _take_users(given, value, path)
            elif name in SECTIONS:
                for key, inner in _table(value, f"{path}: {name}").items():
                    with given.noting():
                        _take_key(given, f"{name}.{key}", inner, path)
            else:
                _take_key(given, name, value, path)


def _take_key(given: _Given, key: str, value: object, path: Path) -> None:
    if (setting := _KNOWN.get(key)) is None:
        raise _unknown("key", key, [*SETTINGS, "logs", "users"], f"{path}: {key}")
    given.take(setting, value, str(path), f"{path}: {key}", base=path.parent)


def _take_logs(given: _Given, tables: object, path: Path) -> None:
    for log, table in _table(tables, f"{path}: logs").items():
        where = f"{path}: logs.{log}"
        with given.noting():
            _add_log(given, log, str(path), where)
            for name, value in _table(table, where).items():
                with given.noting():
                    if name not in LOG_READERS:
                        raise _unknown("key", name, LOG_READERS, f"{where}.{name}")
                    given.take_log_setting(log, name, value, str(path), f"{where}.{name}")


def _take_users(given: _Given, tables: object, path: Path) -> None:
    for user, table in _table(tables, f"{path}: users").items():
        with given.noting():
            _take_user(given, user, table, path)


def _take_user(given: _Given, user: str, table: object, path: Path) -> None:
    where = f"{path}: users.{user}"
    try:
        given.users[user] = Account.of_table(user, _table(table, where))
    except InvalidConfiguration:
        raise
    except InvalidInput as error:
        raise InvalidConfiguration(error.problem, f"{where}.{error.where}") from None
    given.origins[f"users.{user}"] = str(path)


def _take_environment(given: _Given, environment: Mapping[str, str]) -> None:
    variables = {setting.variable: setting for setting in _KNOWN.values()}
    others = {CONFIG_VARIABLE, LOGS_VARIABLE, NO_EXTENSIONS_VARIABLE, *CLIENT_VARIABLES}
    for name, value in sorted(environment.items()):
        if _is_of_kubernetes(name, value):
            continue
        with given.noting():
            if setting := variables.get(name):
                given.take(setting, value, name)
            elif name.startswith("HEADWATER_") and name not in others:
                raise _unknown("variable", name, [*variables, *others], "environment")
    for text in environment.get(LOGS_VARIABLE, "").split(","):
        if text.strip():
            with given.noting():
                _take_log(given, text.strip(), LOGS_VARIABLE)


def _is_of_kubernetes(name: str, value: str) -> bool:
    """Whether Kubernetes sets the variable in each pod, for a Service named `headwater` or `headwater-...`.

    HEADWATER_HTTP_PORT is also a setting; Kubernetes sets it to an address, `tcp://10.0.0.1:8080`.
    """
    if name.startswith("HEADWATER_") and name.endswith("_PORT") and _ADDRESS_OF_SERVICE.match(value):
        return True
    return _OF_SERVICE.fullmatch(name) is not None


def _take_log(given: _Given, text: str, origin: str) -> None:
    """`NAME[:PARTITIONS]`."""
    name, colon, partitions = text.partition(":")
    _add_log(given, name, origin, origin)
    if colon:
        given.take_log_setting(name, "partitions", partitions, origin, f"{origin} {text}")


def _add_log(given: _Given, log: str, origin: str, where: str) -> None:
    try:
        check_log_name(log)
    except InvalidInput as error:
        raise InvalidConfiguration(error.problem, where) from None
    given.logs.setdefault(log, {})
    given.origins.setdefault(f"logs.{log}", origin)


def _build(given: _Given) -> Config:
    tables: dict[str, dict[str, Any]] = {name: {} for name in ("", *SECTIONS)}
    for key, value in given.values.items():
        section, _, name = key.rpartition(".")
        tables[section][name] = value
    return Config(
        **tables.pop(""),
        **{name: SECTIONS[name](**table) for name, table in tables.items()},
        logs=given.logs or {DEFAULT_LOG: {}},
        users=given.users,
        origins=given.origins,
        removed=given.removed,
    )


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidConfiguration("expected a table", where)
    return value


def _unknown(what: str, name: str, known: Iterable[str], where: str) -> InvalidConfiguration:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return InvalidConfiguration(f"unknown {what} {name}; did you mean {nearest[0]}?", where)
