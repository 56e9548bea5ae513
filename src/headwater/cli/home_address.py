"""Connects the commands of `headwater home` to the database: like a server, or as a role that may change its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import StorageUnavailable
from ..formats.settings.declaration import InvalidConfiguration
from .options import load_config

if TYPE_CHECKING:
    from ..homes.postgres.home import PostgresHome
    from ..homes.postgres.schema import Connection


def home_address(file: Path | None, flags: dict[str, object]) -> str:
    """The address of the home. Raises InvalidConfiguration if it is not set."""
    config = load_config(file, flags)
    if config.home is None:
        raise InvalidConfiguration("it is not set; name the database with --home", "home")
    return config.home


@contextmanager
def opened_home(address: str) -> Iterator[PostgresHome]:
    """The home, until the block ends. Raises StorageUnavailable."""
    from ..homes.postgres.home import PostgresHome

    with closing(PostgresHome(address)) as opened:
        yield opened


@contextmanager
def connected_owner(address: str, remedy: str = "connect as the owner of its tables") -> Iterator[Connection]:
    """Connect as a role that may change the tables; `remedy`: what to do if it may not."""
    from ..homes.postgres.connections import PINNED, load_driver
    from ..homes.postgres.statements import described

    driver, name = load_driver(), described(address)
    try:
        with driver.connect(address, autocommit=True) as connection:
            connection.execute(PINNED)
            yield connection
    except driver.errors.InsufficientPrivilege as error:
        raise StorageUnavailable(f"{name} cannot be created or changed: {str(error).strip()}; {remedy}") from None
    except driver.Error as error:
        raise StorageUnavailable(f"{name} cannot be created or changed: {str(error).strip()}") from None
