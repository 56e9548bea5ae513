"""A database of three hosts that Patroni looks after, with Raft of its own: it promotes a standby that has each commit.

Patroni runs as `nobody` where the tests run as root; it may then still read what only root can reach, such as Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.interop.runtimes import Patroni
from tests.ports import free_ports
from tests.waiting import eventually

from .postgres_server import NOBODY, USER, address_of, binaries, fast_folder

NAMES = ("db_1", "db_2", "db_3")
TTL_S = 20
"""The least that Patroni takes: so long a leader that died is waited for."""
WITHIN_S = 120.0
_AS_NOBODY = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
)


class PatroniHost:
    """One host: Patroni, and the PostgreSQL that it starts."""

    def __init__(self, folder: Path, name: str, ports: tuple[int, int, int], partners: Sequence[int]) -> None:
        """`ports`: of PostgreSQL, of Patroni over HTTP and of Raft; `partners`: of Raft, of the other hosts."""
        self.name, self._folder = name, folder / name
        self._folder.mkdir()
        self.port, self._http, raft = ports
        self._data = self._folder / "data"
        (self._folder / "patroni.json").write_text(json.dumps(self._configuration(raft, partners)))
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        """Whether it was started, and not killed since."""
        return self._process is not None

    def start(self) -> None:
        """Start Patroni, which does the rest."""
        prefix = _AS_NOBODY if os.geteuid() == 0 else ()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "PATRONI_"))}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*prefix, *Patroni().command(), self._folder / "patroni.json"],
                stdout=log, stderr=log, cwd=self._folder, env=environment,
            )  # fmt: skip

    def kill(self) -> None:
        """As a loss of the whole host: Patroni and every process of PostgreSQL end at once."""
        assert self._process is not None
        self._process.kill()
        with contextlib.suppress(FileNotFoundError):
            postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
                for pid in (postmaster, *map(int, children)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                eventually(lambda: _is_gone(postmaster))
        self._process.wait()
        self._process = None

    def says(self) -> dict[str, Any]:
        """What Patroni says of its host; nothing while it does not answer."""
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self._http}/patroni", timeout=5) as answer,
        ):
            told: dict[str, Any] = json.load(answer)
            return told
        return {}

    def complains(self) -> str:
        """The end of what it logged."""
        return (self._folder / "log").read_text(errors="replace")[-3000:]

    def _configuration(self, raft: int, partners: Sequence[int]) -> dict[str, Any]:
        shared = {
            "ttl": TTL_S,
            "loop_wait": 1,
            "retry_timeout": 3,
            "synchronous_mode": True,
            "synchronous_mode_strict": True,
            "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 60}},
        }
        return {
            "scope": "headwater",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self._http}", "connect_address": f"127.0.0.1:{self._http}"},
            "raft": {
                "data_dir": str(self._folder / "raft"),
                "self_addr": f"127.0.0.1:{raft}",
                "partner_addrs": [f"127.0.0.1:{port}" for port in partners],
            },
            "bootstrap": {"dcs": shared, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self._data),
                "bin_dir": str(binaries()),
                "pgpass": str(self._folder / "pgpass"),
                "authentication": {"superuser": {"username": USER}, "replication": {"username": USER}},
                "pg_hba": [f"host {database} all 127.0.0.1/32 trust" for database in ("all", "replication")],
                "parameters": {
                    "unix_socket_directories": "",
                    "shared_buffers": "16MB",
                    "dynamic_shared_memory_type": "mmap",
                    "max_wal_size": "128MB",
                    "logging_collector": "off",
                },
            },
        }


class PatroniDatabase:
    """Three hosts, with `synchronous_mode_strict`: a commit is answered when a standby has it that may be promoted."""

    promotion: ClassVar[str] = "managed"
    """What the owner of a home in it declares."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-patroni-", dir=fast_folder())).resolve()
        self._folder.chmod(0o755)
        ports = free_ports(3 * len(NAMES))
        raft = ports[2::3]
        self.hosts = [
            PatroniHost(self._folder, name, (ports[3 * at], ports[3 * at + 1], raft[at]), raft[:at] + raft[at + 1 :])
            for at, name in enumerate(NAMES)
        ]
        try:
            self.mend()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address of whichever host takes writes."""
        return address_of(*(host.port for host in self.hosts))

    def leader(self) -> PatroniHost | None:
        """Which host takes writes, as it says itself."""
        for host in self.hosts:
            if host.runs and (told := host.says()).get("role") in ("primary", "master") and told["state"] == "running":
                return host
        return None

    def kill(self) -> None:
        """The leader is lost."""
        leader = self.leader()
        assert leader is not None
        leader.kill()

    def fail_over(self) -> None:
        """Wait until Patroni has promoted another host."""
        eventually(lambda: self.leader() is not None, self._complaints, within_s=WITHIN_S)

    def mend(self) -> None:
        """Start the hosts that do not run, and wait until all do, and a standby is waited for."""
        for host in self.hosts:
            if not host.runs:
                host.start()
        eventually(self._is_whole, self._complaints, within_s=WITHIN_S)

    def close(self) -> None:
        """End all of it, and remove it."""
        for host in self.hosts:
            if host.runs:
                host.kill()
        shutil.rmtree(self._folder)

    def _is_whole(self) -> bool:
        if (leader := self.leader()) is None:
            return False
        streams = [each for each in leader.says().get("replication", ()) if each["state"] == "streaming"]
        return len(streams) == len(self.hosts) - 1 and any(each["sync_state"] == "sync" for each in streams)

    def _complaints(self) -> str:
        return "\n".join(f"{host.name}: {host.complains()}" for host in self.hosts)


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
