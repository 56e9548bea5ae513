"""Documents as stories that can be done as they are told: one server, and everything in them run against it, in order.

In a story

- a block of `sh` is run by bash, and must succeed; `headwater serve` in it starts the server of the story, and where no
  block does, there is one with a log `orders`;
- a line of it after `# refused:` must fail, and what it writes to standard error is shown, too; one after
  `# until Ctrl-C:` is interrupted after a while; pip has nothing to do, because everything is installed; a command ends
  without a comment, which an interactive zsh would pass on as arguments;
- a block of `python` is run with the names of those before, or, with a session of Spark, as a program of its own; one
  with proton is run where that is installed;
- one of `javascript` is run by Node.js, where what it requires is installed (both by `make interop-clients`);
- one of `toml` is a configuration that a server takes, and one of `json` is JSON;
- a block of `text` after one of them is what it writes to standard output; seconds and times of day may differ.

Ports and directories are those of the documents; here they are replaced by free ones, and by ones below a directory.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from headwater.server.config.sources import load
from tests.server.starting import Process, inherited, start
from tests.waiting import eventually

from .documents import NOT_RUN, ROOT, text_of

PORTS = {"http": "(?:8080|9043)", "amqp": "5672", "grpc": "8815"}
PLACES = ("/var/lib/", "/mnt/")
"""Where documents keep things; here that is below the directory of the story."""
HOME = "/home/ann"
"""Where documents say that they are done; here that is the directory of the story."""
REAL = "README.md"
"""Stories of documents of this name have the real command as their server; others fork it."""
RUN = {"sh", "python", "javascript"}
"""What takes a server."""

NODE_MODULES = [ROOT / ".interop" / library / "node_modules" for library in ("rhea", "futoin")]
PROTON = ROOT / ".interop" / "proton" / "venv" / "bin" / "python"

SMALL_SPARK = """\
spark.master local[2]
spark.sql.shuffle.partitions 2
spark.driver.memory 1g
spark.driver.defaultJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
"""For a story of a few events, a Java that starts fast."""

BLOCK_S_MAX = 600
STOP_S_MAX = 60
FOLLOW_S = 3
"""After so long Ctrl-C is pressed."""

_BLOCK = re.compile(r"^(?P<before>[^\n]*)\n+```(?P<language>\w+)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
_SERVE = re.compile(r"^headwater serve\b([^#\n&]*)", re.MULTILINE)
SPARK = re.compile(r"^from headwater\.spark(\.pipelines)? import", re.MULTILINE)
"""What a program of Spark has, which is run by itself: its Java would live as long as this process."""
_REQUIRED = re.compile(r"require\('([^']+)'\)")
_ALLOWED = "headwater user allow-everybody"
_SECONDS = re.compile(r"\b\d+\.\d+ s\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\b")
_VARIABLE = re.compile(r"^([A-Z]+)=", re.MULTILINE)
_PRELUDE = """\
[ ! -f variables ] || . ./variables
set -e
curl() { command curl --silent --show-error --fail-with-body "$@"; }
pip() { :; }
"""


@dataclass
class Block:
    """A fenced block that is run, or checked."""

    language: str
    code: str
    line: int
    """Its first line in the document, less one."""


def blocks(document: Path) -> Iterator[Block]:
    """The blocks of a document that are told to be in some language, without those that are not to be run."""
    text = text_of(document)
    for found in _BLOCK.finditer(text):
        if not NOT_RUN.fullmatch(found["before"].strip()):
            yield Block(found["language"], found["code"], text.count("\n", 0, found.start("code")))


@dataclass
class Story:
    """What has happened so far, in a directory of its own; a context manager that ends it."""

    directory: Path
    said: str | None = None
    """What the last block wrote."""
    ports: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    _server: Process | None = None
    _variables: set[str] = field(default_factory=set)
    """Variables of the shell (capital letters) that blocks after the one that set them know."""

    def __enter__(self) -> Story:
        programs = self.directory / "programs"
        programs.mkdir()
        command = programs / "headwater"
        command.write_text(f"#!{sys.executable}\nfrom headwater.cli.main import main\nmain()\n")
        command.chmod(0o755)
        (programs / "spark-defaults.conf").write_text(SMALL_SPARK)
        shutil.copytree(ROOT / "examples", self.directory / "examples")
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._server is not None:
            self._server.terminate()
            with self._server:
                self._server.wait(STOP_S_MAX)

    def run(self, document: Path) -> None:
        """Everything in a document. Raises AssertionError, or what its Python raises."""
        act = {
            "sh": self._shell,
            "python": self._python,
            "javascript": self._javascript,
            "toml": self._configure,
            "json": self._parse,
            "text": self._compare,
        }
        told = list(blocks(document))
        if not any(_serves(block) for block in told) and any(block.language in RUN for block in told):
            self._serve(["--log", "orders"], document.name)
        for block in told:
            act[block.language](block, f"{document.name}:{block.line}")

    def _shell(self, block: Block, where: str) -> None:
        if served := _serves(block):
            written = self._serve(self._here(served[1]).split(), where)
            self.said = written if len(block.code.splitlines()) == 1 else None  # no other line of it is run
            return
        lines = list(_expected(self._here(block.code).splitlines()))
        self._variables |= set(_VARIABLE.findall(block.code))
        keep = [f"declare -p {' '.join(sorted(self._variables))} > variables"] if self._variables else []
        self.said = self._command(["bash", "-c", _PRELUDE + "\n".join([*lines, *keep])], where)
        if _ALLOWED in block.code and self._server is not None:
            eventually(self._is_open, lambda: f"{where}: the server still asks for a user")

    def _is_open(self) -> bool:
        """Whether the server answers without a user: it applies changes of users within a second, not at once."""
        try:
            with urlopen(f"http://127.0.0.1:{self.ports['http']}/metrics"):
                return True
        except HTTPError as error:
            with error:
                return False

    def _python(self, block: Block, where: str) -> None:
        if SPARK.search(block.code):
            self.said = self._command([sys.executable, "-c", self._here(block.code)], where)
            return
        if "from proton" in block.code:
            self.said = self._command([str(PROTON), "-c", self._here(block.code)], where) if PROTON.exists() else None
            return
        code = compile("\n" * block.line + self._here(block.code), where, "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as written:
            exec(code, self.names)
        self.said = written.getvalue()

    def _javascript(self, block: Block, where: str) -> None:
        self.said = None
        there = all(any((place / name).is_dir() for place in NODE_MODULES) for name in _REQUIRED.findall(block.code))
        if there and shutil.which("node"):
            self.said = self._command(["node", "-e", self._here(block.code)], where)

    def _configure(self, block: Block, where: str) -> None:
        file = self.directory / "told.toml"
        file.write_text(block.code, encoding="utf-8")
        load({}, file=file, environment={})

    def _parse(self, block: Block, where: str) -> None:
        json.loads(block.code)

    def _compare(self, block: Block, where: str) -> None:
        if self.said is not None:
            said, told = map(_comparable, (self.said, self._here(block.code)))
            assert said == told, f"{where}: this is what was written: {self.said}"

    def _serve(self, arguments: list[str], where: str) -> str:
        """Start the server; answers what it writes until it is ready."""
        assert self._server is None, f"{where}: a story has one server"
        ports = ["--http-port", "0", "--amqp-port", "0", "--flight-port", "0"]
        self._server = start(
            ["serve", *arguments, *ports],
            program=["headwater"] if where.startswith(REAL) else None,
            cwd=self.directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        lines = []
        for scheme in PORTS:
            lines.append(line := self._server.stdout.readline())
            address = line.removeprefix("headwater: listening on ")
            assert address.startswith(f"{scheme}://"), f"{where}: the server did not start: {line!r}"
            self.ports[scheme] = address.split()[0].rpartition(":")[2]
        return "".join(lines)

    def _here(self, code: str) -> str:
        """The code with the ports of this server, and with directories that are there to be written to."""
        code = code.replace(HOME, str(self.directory))
        for place in PLACES:
            (self.directory / place.strip("/")).mkdir(parents=True, exist_ok=True)
            code = code.replace(place, f"{self.directory}{place}")
        for scheme, port in self.ports.items():
            code = re.sub(rf"\b{PORTS[scheme]}\b", port, code)
        code = re.sub(r"amqp://localhost(?!:)", f"amqp://localhost:{self.ports.get('amqp', '')}", code)
        at = f'.option("url", "grpc://127.0.0.1:{self.ports.get("grpc", "")}")'  # where the source looks itself
        return re.sub(r'\.format\("headwater"\)(?!\.option\("url")', f'.format("headwater"){at}', code)

    def _command(self, command: list[str], where: str) -> str:
        with subprocess.Popen(
            command,
            cwd=self.directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said, complaint = process.communicate(timeout=BLOCK_S_MAX)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it has left running, Spark's Java first of all
        assert process.returncode == 0, f"{where}: exit code {process.returncode}: {said}{complaint}"
        return said

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in inherited().items() if not name.startswith("HEADWATER_")}
        if self.ports:
            kept["HEADWATER_URL"] = f"http://127.0.0.1:{self.ports['http']}"
            kept["HEADWATER_AMQP_URL"] = f"amqp://127.0.0.1:{self.ports['amqp']}"
            kept["HEADWATER_FLIGHT_URL"] = f"grpc://127.0.0.1:{self.ports['grpc']}"
        path = os.pathsep.join([str(self.directory / "programs"), str(Path(sys.executable).parent), kept["PATH"]])
        modules = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
        nodes = os.pathsep.join(map(str, NODE_MODULES))
        kept["SPARK_CONF_DIR"] = str(self.directory / "programs")
        kept["SPARK_LOCAL_IP"] = "127.0.0.1"
        return {**kept, "PATH": path, "PYTHONPATH": modules, "NODE_PATH": nodes}


def _comparable(text: str) -> str:
    """What is written, the same whenever and however fast it is, and without the spaces that end a table's lines."""
    return _TIME.sub("", _SECONDS.sub("0.0 s", "\n".join(map(str.rstrip, text.strip().splitlines()))))


def _serves(block: Block) -> re.Match[str] | None:
    """Where it starts the server, if it does; with the options."""
    return _SERVE.search(block.code) if block.language == "sh" else None


def _expected(lines: list[str]) -> Iterator[str]:
    """Lines of shell, each with what a comment before it says of its end."""
    for before, line in pairwise(["", *lines]):
        if before == "# refused:":
            yield f"if {line} 2>&1; then echo 'this was to be refused' >&2; exit 99; fi"
        elif before == "# until Ctrl-C:":
            yield f"timeout --signal INT {FOLLOW_S} {line} || [ $? -eq 124 ]"
        else:
            yield line
