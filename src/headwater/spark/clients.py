"""The options for the server's address and the credentials, and one client per process for each."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from ..core.errors import InvalidInput
from ..flight.calls.address import RETRIES, TIMEOUT_S, BulkAddress
from ..flight.client import BulkClient
from ..formats.clients.address import urls_of
from ..formats.settings.client_variables import PASSWORD, TOKEN, USER
from .options import URL_VARIABLE, InvalidOption, Option, boolean, default_url, duration_ms, number, text


def _url(given: str) -> str:
    if "@" in given:  # it may contain a password, which must not be shown
        raise InvalidInput("expected a URL without a user; set the options user and password instead")
    return BulkAddress(given).url


def _url_of_environment() -> str:
    """Raises InvalidInput, with the variable's name."""
    try:
        return _url(default_url())
    except InvalidInput as error:
        raise InvalidInput(error.problem, URL_VARIABLE) from None


CONNECTION = (
    Option("url", "grpc://HOST:PORT or grpc+tls://HOST:PORT, or several, separated by commas", _url),
    Option("user", "a user's name", text),
    Option("password", "a password", text, is_secret=True),
    Option("token", "an API token", text, is_secret=True),
    Option("caFile", "a file of certificates", text),
    Option("tlsVerify", "true or false", boolean),
    Option("timeout", "a duration such as 500ms, 30s or 5m", duration_ms),
    Option("retries", "a whole number from 0 to 1000", number(0, 1000)),
)
"""The options for the server's address and the credentials."""

_NAMES = {"ca_file": "caFile", "is_verified": "tlsVerify", "timeout_s": "timeout"}


def address_of(values: Mapping[str, Any]) -> BulkAddress:
    """The address in the values of CONNECTION (other options are ignored). It does not show any secret, and is
    serializable. Raises InvalidOption: a user without a password, or with a token; or a certificate file that cannot be
    read here."""
    try:
        url = values["url"] if "url" in values else _url_of_environment()
        address = BulkAddress(
            url,
            **_who(values, url),
            ca_file=values.get("caFile"),
            is_verified=values.get("tlsVerify", True),
            timeout_s=values["timeout"] / 1000 if "timeout" in values else TIMEOUT_S,
            retries=values.get("retries", RETRIES),
        )
        address.ca_bytes()
        return address
    except InvalidInput as error:
        raise InvalidOption(error.problem, _NAMES.get(error.where, error.where)) from None


def _who(values: Mapping[str, Any], url: str) -> dict[str, str | None]:
    """The credentials, from the options, or from the variables, which apply only to this process's own server."""
    given = {name: values.get(name) for name in ("user", "password", "token")}
    if any(given.values()) or not _is_of_environment(url):
        return given
    if token := os.environ.get(TOKEN):
        return {"token": token}
    return {"user": os.environ.get(USER) or None, "password": os.environ.get(PASSWORD) or None}


def _is_of_environment(url: str) -> bool:
    """Whether each address is among those in the variable."""
    try:
        return set(urls_of(url)) <= set(urls_of(_url(default_url())))
    except InvalidInput:  # it does not match any server
        return False


def client_of_task(address: BulkAddress) -> BulkClient:
    """This process's client for reading slices. Each process starts at a different address, but never at the last."""
    return client_of(address.turned(os.getpid()))


_clients: dict[tuple[int, BulkAddress], BulkClient] = {}
_lock = threading.Lock()


def client_of(address: BulkAddress) -> BulkClient:
    """This process's client for that server. Spark uses a worker process for many tasks, which share the connection. It
    is never closed, and lives as long as the worker. A forked process gets its own client, because gRPC does not
    survive a fork."""
    key = (os.getpid(), address)
    with _lock:
        if key not in _clients:
            _clients[key] = BulkClient.of(address)
        return _clients[key]
