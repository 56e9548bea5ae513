"""Documents that are told as they are done: one server, and everything in them run against it, in order.

In a story

- a block of `sh` is run by bash, and must succeed; `headwater serve` in it starts the server of the story;
- a line of it that ends with `# refused` must fail, and one with `# until Ctrl-C` is interrupted after a while;
- a block of `python` is run with the names of those before, or, with a session of Spark, as a program of its own;
- one of `javascript` is run by Node.js, where rhea is installed;
- a block of `text` after one of them is what it writes to standard output.

Ports and directories are those of the documents; here they are replaced by free ones, and by ones below a directory.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .documents import NOT_RUN, ROOT

PORTS = {"http": "(?:8080|9043)", "amqp": "5672", "grpc": "8815"}
PLACES = ("/var/lib/", "/mnt/")
"""Where documents keep things; here that is below the directory of the story."""
RHEA = ROOT / ".interop" / "rhea" / "node_modules"
BLOCK_S_MAX = 300
STOP_S_MAX = 60
FOLLOW_S = 5
"""After so long Ctrl-C is pressed."""

_BLOCK = re.compile(r"^(?P<before>[^\n]*)\n+```(?P<language>\w+)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
_SERVE = re.compile(r"^headwater serve\b([^#\n&]*)", re.MULTILINE)
_SPARK = "from headwater.spark import session"
_VARIABLE = re.compile(r"^([A-Z]+)=", re.MULTILINE)
_PRELUDE = """\
[ ! -f variables ] || . ./variables
set -e
curl() { command curl --silent --show-error --fail-with-body "$@"; }
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
    text = document.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        if found["before"].strip() != NOT_RUN:
            yield Block(found["language"], found["code"], text.count("\n", 0, found.start("code")))


@dataclass
class Story:
    """What has happened so far, in a directory of its own; a context manager that ends it."""

    directory: Path
    said: str | None = None
    """What the last block wrote."""
    ports: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    _server: subprocess.Popen[str] | None = None
    _variables: set[str] = field(default_factory=set)
    """Variables of the shell (capital letters) that blocks after the one that set them know."""

    def __enter__(self) -> Story:
        programs = self.directory / "programs"
        programs.mkdir()
        command = programs / "headwater"
        command.write_text(f"#!{sys.executable}\nfrom headwater.server.cli import main\nmain()\n")
        command.chmod(0o755)
        shutil.copytree(ROOT / "examples", self.directory / "examples")
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._server is not None:
            self._server.terminate()
            with self._server:
                self._server.wait(STOP_S_MAX)

    def run(self, document: Path) -> None:
        """Everything in a document. Raises AssertionError, or what its Python raises."""
        for block in blocks(document):
            act = {"sh": self._shell, "python": self._python, "javascript": self._javascript, "text": self._compare}
            if block.language in act:
                act[block.language](block, f"{document.name}:{block.line}")

    def _shell(self, block: Block, where: str) -> None:
        if served := _SERVE.search(block.code):
            self._serve(self._here(served[1]).split(), where)
            return
        lines = [_expected(line) for line in self._here(block.code).splitlines()]
        self._variables |= set(_VARIABLE.findall(block.code))
        keep = [f"declare -p {' '.join(sorted(self._variables))} > variables"] if self._variables else []
        self.said = self._command(["bash", "-c", _PRELUDE + "\n".join([*lines, *keep])], where)

    def _python(self, block: Block, where: str) -> None:
        if _SPARK in block.code:  # a program of its own: its Java would live as long as this process
            self.said = self._command([sys.executable, "-c", self._here(block.code)], where)
            return
        code = compile("\n" * block.line + self._here(block.code), where, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as written:
            exec(code, self.names)
        self.said = written.getvalue()

    def _javascript(self, block: Block, where: str) -> None:
        self.said = None
        if RHEA.is_dir() and shutil.which("node"):
            self.said = self._command(["node", "-e", self._here(block.code)], where)

    def _compare(self, block: Block, where: str) -> None:
        if self.said is not None:
            assert self.said.strip() == block.code.strip(), f"{where}: this is what was written: {self.said}"

    def _serve(self, arguments: list[str], where: str) -> None:
        assert self._server is None, f"{where}: a story has one server"
        ports = ["--http-port", "0", "--amqp-port", "0", "--flight-port", "0"]
        self._server = subprocess.Popen(
            ["headwater", "serve", *arguments, *ports],
            cwd=self.directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        for scheme in PORTS:
            line = self._server.stdout.readline().removeprefix("headwater: listening on ")
            assert line.startswith(f"{scheme}://"), f"{where}: the server did not start: {line!r}"
            self.ports[scheme] = line.split()[0].rpartition(":")[2]

    def _here(self, code: str) -> str:
        """The code with the ports of this server, and with directories that are there to be written to."""
        for place in PLACES:
            (self.directory / place.strip("/")).mkdir(parents=True, exist_ok=True)
            code = code.replace(place, f"{self.directory}{place}")
        for scheme, port in self.ports.items():
            code = re.sub(rf"\b{PORTS[scheme]}\b", port, code)
        return code

    def _command(self, command: list[str], where: str) -> str:
        done = subprocess.run(
            command, cwd=self.directory, env=self._environment(), capture_output=True, text=True, timeout=BLOCK_S_MAX
        )
        assert done.returncode == 0, f"{where}: exit code {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
        if self.ports:
            kept["HEADWATER_URL"] = f"http://127.0.0.1:{self.ports['http']}"
            kept["HEADWATER_AMQP_URL"] = f"amqp://127.0.0.1:{self.ports['amqp']}"
            kept["HEADWATER_FLIGHT_URL"] = f"grpc://127.0.0.1:{self.ports['grpc']}"
        path = os.pathsep.join([str(self.directory / "programs"), str(Path(sys.executable).parent), kept["PATH"]])
        modules = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
        return {**kept, "PATH": path, "PYTHONPATH": modules, "NODE_PATH": str(RHEA)}


def _expected(line: str) -> str:
    """A line of shell, with what its comment says of its end."""
    command, _, comment = line.partition("  # ")
    if comment.startswith("refused"):
        return f"if {command}; then echo 'this was to be refused: {comment}' >&2; exit 99; fi"
    if comment.startswith("until Ctrl-C"):
        return f"timeout --signal INT {FOLLOW_S} {command.strip()} || [ $? -eq 124 ]"
    return line
