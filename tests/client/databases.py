"""Databases of the tests' own, in whose transactions events happen: SQLite, PostgreSQL, and MariaDB as MySQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.interop.install import unavailable
from tests.interop.runtimes import MariaDb, PostgreSql
from tests.waiting import eventually

from headwater.client.outbox import connect_database

DATABASES = ("sqlite", "postgresql", "mysql")


def address_of(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of the database that the test's parameter names."""
    if request.param == "sqlite":
        return str(tmp_path / "app.sqlite")
    address: str = request.getfixturevalue(request.param)
    return address


def execute(connection: Any, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows of a statement in any of the databases."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        cursor.close()


@contextmanager
def postgresql_server() -> Iterator[str]:
    """The address of a PostgreSQL server of the test's own."""
    if reason := PostgreSql().missing():
        unavailable(reason)
    initdb, pg_ctl = PostgreSql.program("initdb"), PostgreSql.program("pg_ctl")
    pytest.importorskip("psycopg")
    directory = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
    owner: dict[str, Any] = {}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(directory, "postgres")
        owner = {"user": "postgres", "cwd": directory}
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **owner}
    options = f"-c listen_addresses='' -c unix_socket_directories={directory}"
    subprocess.run([initdb, "-D", str(directory / "data"), "-A", "trust", "-U", "test"], **quiet)
    subprocess.run([pg_ctl, "-D", str(directory / "data"), "-o", options, "-w", "start"], **quiet)
    try:
        yield f"postgresql://test@/postgres?host={directory}"
    finally:
        subprocess.run([pg_ctl, "-D", str(directory / "data"), "-m", "immediate", "-w", "stop"], **quiet)
        shutil.rmtree(directory)


@contextmanager
def mysql_server() -> Iterator[str]:
    """The address of a MariaDB server of the test's own: without users, on a Unix socket only."""
    if reason := MariaDb().missing():
        unavailable(reason)
    directory = Path(tempfile.mkdtemp(prefix="headwater-mariadb-"))
    (directory / "data").mkdir()
    socket = directory / "socket"
    options = [f"--datadir={directory / 'data'}", f"--socket={socket}", "--skip-networking", "--skip-grant-tables"]
    if os.getuid() == 0:
        options.append("--user=root")
    server = subprocess.Popen(
        [*MariaDb().command(), "--no-defaults", *options, "--innodb-buffer-pool-size=16M"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: socket.exists() or server.poll() is not None)
        address = f"mysql://root@{quote(str(socket), safe='')}"
        with closing(connect_database(f"{address}/information_schema")) as connection:
            execute(connection, "CREATE DATABASE shop CHARACTER SET utf8mb4")
        yield f"{address}/shop"
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(directory)
