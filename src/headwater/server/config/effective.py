"""The effective configuration as TOML, each value with its origin, as `headwater config` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...formats.settings.declaration import show_bytes, show_duration, toml
from .memory_shares import PEERS_PART, MemoryShares
from .settings import LOG_READERS, REMOVED, SETTINGS, Config

SECRET = "(not shown)"


def render(config: Config) -> Iterator[str]:
    """The lines. Password hashes, token hashes and keys are hidden."""
    section = ""
    for key in SETTINGS:
        head, _, name = key.rpartition(".")
        if head != section:
            section = head
            yield from ("", f"[{section}]")
        if key == "memory.peers" and key not in config.origins:
            peers = MemoryShares.of(config.memory).peers
            yield _line(name, peers, f"default, 1/{PEERS_PART} of the available memory")
            continue
        yield _line(name, _shown(key, _value(config, key)), config.origins.get(key, "default"))
    for key, origin in config.removed.items():
        yield f"# {key} ({origin}) no longer has an effect: see {REMOVED[key].summary}"
    for log, given in config.logs.items():
        yield from ("", f"[logs.{toml(log)}]  # {config.origins.get(f'logs.{log}', 'default')}")
        for name in LOG_READERS:
            if name in given:
                yield _line(name, given[name], config.origins[f"logs.{log}.{name}"])
    for user, account in config.users.items():
        yield from ("", f"[users.{toml(user)}]  # {config.origins[f'users.{user}']}")
        for name, value in account.table.items():
            yield f"{name} = {toml(value if name == 'grants' else SECRET)}"


def _value(config: Config, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _shown(key: str, value: object) -> object:
    """The text without the password in an address."""
    is_secret = key == "home" and isinstance(value, str)
    return re.sub(r"(?<=:)[^:@/]+(?=@)|(?<=password=)\S+", SECRET, str(value)) if is_secret else value


def show_value(name: str, value: object) -> str:
    """A setting's value as TOML, in the unit that its name specifies."""
    if isinstance(value, int) and ("_bytes" in name or name.removeprefix("memory.") == "peers"):
        value = show_bytes(value)
    elif isinstance(value, int) and "_ms" in name:
        value = show_duration(value)
    return toml(value)


def _line(name: str, value: object, origin: str) -> str:
    text = f"# {name} is not set" if value is None else f"{name} = {show_value(name, value)}"
    return f"{text:40}  # {origin}"
