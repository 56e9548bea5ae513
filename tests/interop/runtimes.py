"""The clients: what each needs, how it is built, and how it is run.

Everything that is built goes to `.interop/` of the checkout. It is built again when its sources have changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
BUILT = HERE.parents[1] / ".interop"
BUILD_S_MAX = 900


class Unavailable(Exception):
    """A client cannot be built or run here; the message says what is missing."""


class Runtime(ABC):
    """One client library in the language it is for."""

    name: ClassVar[str]
    """Of the folder with the sources."""
    programs: ClassVar[tuple[str, ...]]
    """What must be on the path."""
    debian: ClassVar[tuple[str, ...]]
    """The packages that bring it on Debian 12."""
    by_night: ClassVar[bool] = False
    """Whether tests need it by night alone."""

    def __init__(self, built: Path = BUILT) -> None:
        self.sources = HERE / self.name
        self.built = built / self.name

    @abstractmethod
    def build(self) -> None:
        """Put what `command` needs into `built`. Raises Unavailable or CalledProcessError."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; an operation and a request are added."""

    def missing(self) -> str | None:
        """Why it cannot run as it is, or None."""
        stamp = self.built / "stamp"
        if not stamp.exists():
            return f"the client {self.name} is not built: `make interop` does that"
        if stamp.read_text() != self._digest():
            return f"the client {self.name} is older than its sources: `make interop` builds it"
        return None

    def install(self) -> bool:
        """Build it if it is not there; whether that was necessary. Raises Unavailable, saying what is missing."""
        if self.missing() is None:
            return False
        self._check_programs()
        self.built.mkdir(parents=True, exist_ok=True)
        (self.built / "stamp").unlink(missing_ok=True)
        try:
            self.build()
        except subprocess.CalledProcessError as error:
            output = ((error.stdout or "") + (error.stderr or "")).strip()[-2000:]
            raise Unavailable(f"{self.name}: {' '.join(map(str, error.cmd))} failed:\n{output}") from None
        (self.built / "stamp").write_text(self._digest())
        return True

    def _check_programs(self) -> None:
        lacking = [program for program in self.programs if shutil.which(program) is None]
        if lacking:
            packages = " ".join(self.debian)
            raise Unavailable(f"{self.name}: no {', '.join(lacking)} here; on Debian: apt-get install {packages}")

    def _digest(self) -> str:
        digest = hashlib.sha256(sys.version.encode())
        for path in sorted(path for path in self.sources.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            digest.update(path.relative_to(self.sources).as_posix().encode() + path.read_bytes())
        return digest.hexdigest()


class Proton(Runtime):
    """python-qpid-proton has no wheels for Linux: pip compiles the C engine that comes with it, in half a minute."""

    name = "proton"
    programs = ("gcc", "pkg-config")
    debian = ("gcc", "pkg-config", "libssl-dev", "python3-dev", "python3-venv")

    def build(self) -> None:
        """See Runtime."""
        venv = self.built / "venv"
        _environment(venv, self.sources / "requirements.txt")
        has_tls = "import proton, sys; sys.exit(not proton.SSL.present())"
        if subprocess.run([venv / "bin" / "python", "-c", has_tls], check=False).returncode:
            raise Unavailable("proton: it was built without TLS; on Debian: apt-get install libssl-dev, then again")

    def command(self) -> list[str]:
        """See Runtime."""
        return [str(self.built / "venv" / "bin" / "python"), str(self.sources / "client.py")]


class Rhea(Runtime):
    """npm puts the packages beside a copy of the client."""

    name = "rhea"
    programs = ("node", "npm")
    debian = ("nodejs", "npm")

    def build(self) -> None:
        """See Runtime."""
        for file in ("package.json", "client.js"):
            shutil.copy(self.sources / file, self.built)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        _run("npm", "install", *quiet, cwd=self.built)
        given = json.loads((self.sources / "package.json").read_text())["dependencies"]["rhea"]
        got = json.loads((self.built / "node_modules" / "rhea" / "package.json").read_text())["version"]
        assert given == got, (given, got)

    def command(self) -> list[str]:
        """See Runtime."""
        return ["node", str(self.built / "client.js")]


class Pyright(Runtime):
    """No client: the type checker of editors, from npm."""

    name = "pyright"
    programs = ("node", "npm")
    debian = ("nodejs", "npm")

    def build(self) -> None:
        """See Runtime."""
        shutil.copy(self.sources / "package.json", self.built)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run("npm", "install", *quiet, cwd=self.built)

    def command(self) -> list[str]:
        """The command line; a project is added."""
        return ["node", str(self.built / "node_modules" / "pyright" / "index.js")]


class Axe(Runtime):
    """No client: the rules of accessibility that a program can check, from npm, run in the browser."""

    name = "axe"
    programs = ("node", "npm")
    debian = ("nodejs", "npm")

    def build(self) -> None:
        """See Runtime."""
        shutil.copy(self.sources / "package.json", self.built)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run("npm", "install", *quiet, cwd=self.built)

    def command(self) -> list[str]:
        """Nothing is run beside the browser."""
        return []

    def source(self) -> str:
        """The script that a page evaluates, which has `axe` then."""
        return (self.built / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


class FutoIn(Runtime):
    """npm puts FutoIn's own library beside a copy of what names it; nothing is compiled."""

    name = "futoin"
    programs = ("node", "npm")
    debian = ("nodejs", "npm")

    def build(self) -> None:
        """See Runtime."""
        shutil.copy(self.sources / "package.json", self.built)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run("npm", "install", *quiet, cwd=self.built)

    def command(self) -> list[str]:
        """See Runtime; the test gives one request after the other."""
        return ["node", str(self.sources / "client.js")]


class Jms(Runtime):
    """Maven puts the jar and what it depends on into one folder."""

    name = "jms"
    programs = ("java", "javac", "mvn")
    debian = ("openjdk-17-jdk-headless", "maven")

    def build(self) -> None:
        """See Runtime."""
        _run("mvn", "-q", "-B", f"-Dinterop.build={self.built / 'target'}", "package", cwd=self.sources)

    def command(self) -> list[str]:
        """See Runtime."""
        target = self.built / "target"
        small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
        return ["java", *small, "-cp", f"{target / 'client.jar'}:{target / 'lib'}/*", "Client"]


class VertX(Jms):
    """Vert.x, from Maven too: AMQP as its applications, and those of Quarkus, speak it."""

    name = "vertx"


class JavaHttp(Runtime):
    """The HTTP client of Java's own library: a class, nothing else."""

    name = "java-http"
    programs = ("java", "javac")
    debian = ("openjdk-17-jdk-headless",)

    def build(self) -> None:
        """See Runtime."""
        _run("javac", "-d", str(self.built), str(self.sources / "Client.java"))

    def command(self) -> list[str]:
        """See Runtime; the test gives all requests at once."""
        small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
        return ["java", *small, "-cp", str(self.built), "Client"]


class GoAmqp(Runtime):
    """Go of the version that go.mod names, or newer; Debian 12 has an older one."""

    name = "go-amqp"
    programs = ("go",)
    debian = ("golang-go (of a newer Debian)",)

    def build(self) -> None:
        """See Runtime."""
        _run("go", "build", "-o", str(self.built / "client"), ".", cwd=self.sources)

    def command(self) -> list[str]:
        """See Runtime."""
        return [str(self.built / "client")]


class Generated(Runtime):
    """A client of HTTP that a generator makes of the OpenAPI documents: built again when those have changed."""

    GENERATOR: ClassVar[str]

    @abstractmethod
    def lending(self) -> list[str]:
        """The command line of the program in `docs/guides/other-languages.md`; its arguments are added."""

    def documents(self) -> dict[str, bytes]:
        """The documents as they are served, by the names of files."""
        from headwater.cne import server

        dcb = HERE.parents[1] / "src" / "headwater" / "dcb" / "openapi.yaml"
        return {"dcb.yaml": dcb.read_bytes(), "cne.json": server.OPENAPI}

    def copy(self) -> None:
        """Put the sources and the documents into `built`."""
        shutil.copytree(self.sources, self.built, dirs_exist_ok=True)
        for name, document in self.documents().items():
            (self.built / name).write_bytes(document)

    def _digest(self) -> str:
        return hashlib.sha256(b"".join((super()._digest().encode(), *self.documents().values()))).hexdigest()


class OpenapiGo(Generated):
    """oapi-codegen makes a package of each document, and Go's compiler and `go vet` look at all of them."""

    name = "openapi-go"
    programs = ("go",)
    debian = ("golang-go (of a newer Debian)",)
    GENERATOR = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"

    def build(self) -> None:
        """See Runtime."""
        self.copy()
        for document in self.documents():
            package = document.partition(".")[0]
            (self.built / package).mkdir(exist_ok=True)
            made = ["-generate", "types,client", "-package", package, "-o", f"{package}/{package}.go", document]
            _run("go", "run", self.GENERATOR, *made, cwd=self.built)
        _run("go", "vet", "./...", cwd=self.built)
        _run("go", "build", "-o", "client", ".", cwd=self.built)
        _run("go", "build", "-o", "lend.bin", "./lend", cwd=self.built)

    def command(self) -> list[str]:
        """See Runtime; the URL of the server and a log are added."""
        return [str(self.built / "client")]

    def lending(self) -> list[str]:
        """See Generated."""
        return [str(self.built / "lend.bin")]


class OpenapiTypescript(Generated):
    """openapi-typescript makes types of each document, and TypeScript's compiler JavaScript of the client."""

    name = "openapi-typescript"
    programs = ("node", "npm")
    debian = ("nodejs", "npm")
    GENERATOR = "openapi-typescript"

    def build(self) -> None:
        """See Runtime."""
        self.copy()
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run("npm", "install", *quiet, cwd=self.built)
        for document in self.documents():
            _run(self.program(self.GENERATOR), document, "-o", f"{document.partition('.')[0]}.d.ts", cwd=self.built)
        self.compile("tsconfig.json")

    def compile(self, project: str) -> None:
        """Raises CalledProcessError, whose output has the errors."""
        _run(self.program("tsc"), "--project", project, cwd=self.built)

    def program(self, name: str) -> str:
        """A program of npm's."""
        return str(self.built / "node_modules" / ".bin" / name)

    def command(self) -> list[str]:
        """See Runtime; the URL of the server and a log are added."""
        return ["node", str(self.built / "client.js")]

    def lending(self) -> list[str]:
        """See Generated."""
        return ["node", str(self.built / "lend.js")]


class OpenapiJava(Generated):
    """openapi-generator makes classes of the document, on Java's own HTTP client; Maven has all of it."""

    name = "openapi-java"
    programs = ("java", "javac", "mvn")
    debian = ("openjdk-17-jdk-headless", "maven")
    GENERATOR = "openapi-generator-maven-plugin"
    MISTAKEN = "additionalProperties: false"
    """In a document of OpenAPI 3.1 the generator takes it for its opposite: classes are maps, and written as `{}`."""

    def build(self) -> None:
        """See Runtime."""
        self.copy()
        shutil.rmtree(self.built / "target", ignore_errors=True)
        document = self.built / "dcb.yaml"
        lines = document.read_text(encoding="utf-8").splitlines(keepends=True)
        document.write_text("".join(line for line in lines if line.strip() != self.MISTAKEN), encoding="utf-8")
        _run("mvn", "-q", "-B", f"-Dinterop.build={self.built / 'target'}", "package", cwd=self.built)

    def command(self) -> list[str]:
        """See Runtime: the program of the guide is all that there is."""
        return self.lending()

    def lending(self) -> list[str]:
        """See Generated."""
        target = self.built / "target"
        small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
        return ["java", *small, "-cp", f"{target / 'client.jar'}:{target / 'lib'}/*", "Lend"]


class OpenapiGenerated(Generated):
    """What openapi-generator makes of the document as it is, with its defaults: Java, Python, TypeScript for two."""

    name = "openapi-generated"
    by_night = True
    programs = ("java", "javac", "mvn", "node", "npm")
    debian = ("openjdk-17-jdk-headless", "maven", "nodejs", "npm")
    GENERATOR = "openapi-generator-maven-plugin"

    def build(self) -> None:
        """See Runtime."""
        self.copy()
        for made in ("target", "fetch", "axios"):
            shutil.rmtree(self.built / made, ignore_errors=True)
        _run("mvn", "-q", "-B", f"-Dinterop.build={self.built / 'target'}", "package", cwd=self.built)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run("npm", "install", *quiet, cwd=self.built)
        _run(str(self.built / "node_modules" / ".bin" / "tsc"), cwd=self.built)

    def command(self) -> list[str]:
        """See Runtime: the programs are in `commands`."""
        return self.commands()["java"]

    def lending(self) -> list[str]:
        """See Generated: there is no such program."""
        raise NotImplementedError

    def commands(self) -> dict[str, list[str]]:
        """The command line of each program, to which the URL of the server and a log are added."""
        target = self.built / "target"
        return {
            "java": ["java", "-Xmx256m", "-cp", f"{target / 'client.jar'}:{target / 'lib'}/*", "Program"],
            "python": ["env", f"PYTHONPATH={target / 'python'}", sys.executable, str(self.sources / "program.py")],
            "fetch": ["node", str(self.built / "fetch.js")],
            "axios": ["node", str(self.built / "axios.js")],
        }


class PostgreSql(Runtime):
    """No client: the database in whose transactions `tests/client/test_outbox.py` writes. Nothing is built."""

    name = "postgresql"
    programs = ("initdb", "pg_ctl")
    debian = ("postgresql",)

    def missing(self) -> str | None:
        """See Runtime."""
        lacking = [name for name in self.programs if self.program(name) is None]
        return f"no {', '.join(lacking)} here; on Debian: apt-get install postgresql" if lacking else None

    def build(self) -> None:
        """See Runtime."""

    def install(self) -> bool:
        """See Runtime."""
        if reason := self.missing():
            raise Unavailable(f"{self.name}: {reason}")
        return False

    def command(self) -> list[str]:
        """See Runtime."""
        return [self.program("pg_ctl") or "pg_ctl"]

    @staticmethod
    def program(name: str) -> str | None:
        """Where a program is: Debian keeps them off the path."""
        places = [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")]
        return shutil.which(name) or shutil.which(name, path=os.pathsep.join(sorted(places, reverse=True)))


class MariaDb(PostgreSql):
    """No client either: what speaks MySQL's protocol to the outbox tests. Nothing is built."""

    name = "mariadb"
    programs = ("mariadbd",)
    debian = ("mariadb-server",)

    def missing(self) -> str | None:
        """See Runtime."""
        lacking = [name for name in self.programs if self.program(name) is None]
        return f"no {', '.join(lacking)} here; on Debian: apt-get install mariadb-server" if lacking else None

    def command(self) -> list[str]:
        """See Runtime."""
        return [self.program("mariadbd") or "mariadbd"]

    @staticmethod
    def program(name: str) -> str | None:
        """Where a program is: the server is in a directory that only root has on the path."""
        return shutil.which(name) or shutil.which(name, path="/usr/sbin")


class DeltaSpark(Runtime):
    """No client either: Delta's own package, and the Spark that it was made for, read archives that were made here."""

    name = "delta-spark"
    by_night = True
    programs = ("java", "mvn")
    debian = ("openjdk-17-jdk-headless", "maven", "python3-venv")

    def build(self) -> None:
        """See Runtime."""
        venv = self.built / "venv"
        _environment(venv, self.sources / "requirements.txt")
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        target = f"-DoutputDirectory={self.built / 'jars'}"
        own = "-DincludeGroupIds=io.delta,io.unitycatalog"  # Spark has the rest
        _run("mvn", "-q", "-B", copy, own, target, cwd=self.sources)

    def command(self) -> list[str]:
        """See Runtime; the table is added."""
        return [str(self.built / "venv" / "bin" / "python"), str(self.sources / "client.py")]


class Chromium(Runtime):
    """No client either: the browser in which `test_browser.py` opens pages of strangers. Nothing is built."""

    name = "chromium"
    programs = ("chromium",)
    debian = ("chromium",)

    def missing(self) -> str | None:
        """See Runtime."""
        is_there = shutil.which("chromium") is not None
        return None if is_there else "no chromium here; on Debian: apt-get install chromium"

    def build(self) -> None:
        """See Runtime."""

    def install(self) -> bool:
        """See Runtime."""
        if reason := self.missing():
            raise Unavailable(f"{self.name}: {reason}")
        return False

    def command(self) -> list[str]:
        """See Runtime; the page is added. All names that end in `.test` lead to this machine."""
        quiet = ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        return ["chromium", "--headless", *quiet, *sandbox, "--host-resolver-rules=MAP *.test 127.0.0.1"]

    @contextmanager
    def driven(self) -> Iterator[Browser]:
        """The browser, driven by Playwright."""
        from playwright.sync_api import sync_playwright  # not at collection

        arguments = [each for each in self.command()[2:] if each.startswith("--")]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            yield browser
            browser.close()


class HaProxy(Runtime):
    """No client either: the load balancer whose configuration `tests/packaging/test_three_machines.py` runs."""

    name = "haproxy"
    programs = ("haproxy",)
    debian = ("haproxy",)

    def missing(self) -> str | None:
        """See Runtime."""
        return None if self.program() is not None else "no haproxy here; on Debian: apt-get install haproxy"

    def build(self) -> None:
        """See Runtime."""

    def install(self) -> bool:
        """See Runtime."""
        if reason := self.missing():
            raise Unavailable(f"{self.name}: {reason}")
        return False

    def command(self) -> list[str]:
        """See Runtime; the configuration is added."""
        return [self.program() or "haproxy", "-f"]

    @staticmethod
    def program() -> str | None:
        """Where it is: in a directory that only root has on the path."""
        return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


class Nginx(HaProxy):
    """No client either: a proxy through which the application of `test_proxies.py` asks its server."""

    name = "nginx"
    programs = ("nginx",)
    debian = ("nginx",)

    def missing(self) -> str | None:
        """See Runtime."""
        return None if self.program() is not None else "no nginx here; on Debian: apt-get install nginx"

    def command(self) -> list[str]:
        """See Runtime; the configuration is added. It logs errors to stderr."""
        return [self.program() or "nginx", "-e", "stderr", "-c"]

    @staticmethod
    def program() -> str | None:
        """Where it is: in a directory that only root has on the path."""
        return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


class Caddy(HaProxy):
    """No client either: a proxy that passes a cut answer on as a whole one (2.6)."""

    name = "caddy"
    programs = ("caddy",)
    debian = ("caddy",)

    def missing(self) -> str | None:
        """See Runtime."""
        return None if self.program() is not None else "no caddy here; on Debian: apt-get install caddy"

    def command(self) -> list[str]:
        """See Runtime; the configuration is added."""
        return [self.program() or "caddy", "run", "--adapter", "caddyfile", "--config"]

    @staticmethod
    def program() -> str | None:
        """Where it is."""
        return shutil.which("caddy")


class Recorder(Runtime):
    """No client either: what `tests/power` has loaded into a server, to see what it writes and syncs."""

    name = "recorder"
    programs = ("cc",)
    debian = ("gcc", "libc6-dev")

    def __init__(self, built: Path = BUILT) -> None:
        super().__init__(built)
        self.sources = HERE.parent / "power" / "recorder"

    @property
    def library(self) -> Path:
        """What is loaded, by LD_PRELOAD."""
        return self.built / "recorder.so"

    def build(self) -> None:
        """See Runtime."""
        source, made = str(self.sources / "recorder.c"), self.library.with_suffix(f".{os.getpid()}")
        _run("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(made), source, "-ldl", "-lpthread")
        os.replace(made, self.library)  # another worker of the tests may be using one

    def command(self) -> list[str]:
        """See Runtime; the program that is watched is added."""
        return ["env", f"LD_PRELOAD={self.library}"]


class OlderPostgreSql(Runtime):
    """No client: servers of PostgreSQL 14 and 15, from Maven Central, as programs in Java embed them in their tests."""

    name = "postgresql-older"
    by_night = True
    programs = ("java", "mvn")
    debian = ("openjdk-17-jdk-headless", "maven")
    MACHINES: ClassVar[dict[str, str]] = {"x86_64": "amd64", "aarch64": "arm64v8"}

    def build(self) -> None:
        """See Runtime."""
        if (machine := self.MACHINES.get(platform.machine())) is None:
            raise Unavailable(f"{self.name}: there are no servers for {platform.machine()}")
        given = [f"-Dinterop.build={self.built}", f"-Dinterop.machine={machine}"]
        _run("mvn", "-q", "-B", *given, "package", cwd=self.sources)
        for jar in self.built.glob("*.jar"):
            with zipfile.ZipFile(jar) as archive:
                [name] = (name for name in archive.namelist() if name.endswith(".txz"))
                with archive.open(name) as packed, tarfile.open(fileobj=packed, mode="r|xz") as files:
                    files.extractall(jar.with_suffix(""), filter="tar")
            jar.unlink()

    def command(self) -> list[str]:
        """See Runtime: tests start a server of the version that they name."""
        raise NotImplementedError

    def folder(self, major: int) -> Path:
        """Where the programs of that version are."""
        return self.built / str(major) / "bin"


class Patroni(Runtime):
    """No client: what promotes a standby by itself, with a Raft of its own instead of etcd."""

    name = "patroni"
    by_night = True
    programs = ()
    debian = ()

    def build(self) -> None:
        """See Runtime."""
        _environment(self.built / "venv", self.sources / "requirements.txt")

    def command(self) -> list[str]:
        """See Runtime; the configuration is added."""
        return [str(self.built / "venv" / "bin" / "python"), "-m", "patroni"]


RUNTIMES: tuple[type[Runtime], ...] = (
    Proton, Rhea, FutoIn, Jms, VertX, JavaHttp, GoAmqp, OpenapiGo, OpenapiTypescript, OpenapiJava, OpenapiGenerated,
    PostgreSql, MariaDb, DeltaSpark, Chromium, Recorder, Pyright, Axe, HaProxy, Nginx, Caddy,
    OlderPostgreSql, Patroni,
)  # fmt: skip


def _environment(directory: Path, requirements: Path) -> None:
    """Make a virtual environment that has what is required."""
    uv = str(Path(sys.executable).with_name("uv"))
    _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory))
    python = str(directory / "bin" / "python")
    _run(uv, "pip", "install", "--quiet", "--python", python, "--requirement", str(requirements))


def _run(*command: str, cwd: Path | None = None) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True, timeout=BUILD_S_MAX)
