"""What the brokers and the load generator install, kept in `build/peers/` for later runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

CACHE = Path(__file__).parents[2] / "build" / "peers"
INSTALL_S_MAX = 900
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:"


class Unavailable(Exception):
    """Something cannot be installed or run here; the message says what is missing."""


def installed(name: str, recipe: str, install: Callable[[Path], None], programs: Sequence[str]) -> Path:
    """The directory in which `install` has put `name`; it is called where that was not done yet, by that recipe.

    Raises Unavailable.
    """
    directory = CACHE / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if (directory / "installed").exists():
        return directory
    if lacking := [program for program in programs if shutil.which(program) is None]:
        raise Unavailable(f"{name}: no {', '.join(lacking)} here")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        install(directory)
    except subprocess.CalledProcessError as error:
        output = ((error.stdout or "") + (error.stderr or "")).strip()[-1000:]
        raise Unavailable(f"{name}: {' '.join(map(str, error.cmd))[:200]} failed: {output}") from None
    (directory / "installed").touch()
    return directory


def run(*command: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Run a command of an installation to its end; what it wrote. Raises CalledProcessError."""
    given = {**os.environ, **(environment or {})}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=given,
        check=True,
        capture_output=True,
        text=True,
        timeout=INSTALL_S_MAX,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def maven_copy(artifact: str, directory: Path) -> Path:
    """One artifact of Maven Central, GROUP:NAME:VERSION[:TYPE[:CLASSIFIER]]; the file."""
    run("mvn", "-q", "-B", f"{_COPY}copy", f"-Dartifact={artifact}", f"-DoutputDirectory={directory}", cwd=directory)
    name, version = artifact.split(":")[1:3]
    return next(directory.glob(f"{name}-{version}*"))


def maven_copy_all(artifacts: Sequence[str], directory: Path) -> None:
    """Some artifacts, GROUP:NAME:VERSION, and everything that they depend on."""
    parts = ("groupId", "artifactId", "version")
    dependencies = "".join(
        "<dependency>"
        + "".join(f"<{part}>{value}</{part}>" for part, value in zip(parts, artifact.split(":"), strict=True))
        + "</dependency>"
        for artifact in artifacts
    )
    identity = "<groupId>benchmark</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>"
    pom = f"<project><modelVersion>4.0.0</modelVersion>{identity}<dependencies>{dependencies}</dependencies></project>"
    (directory / "pom.xml").write_text(pom)
    run("mvn", "-q", "-B", f"{_COPY}copy-dependencies", f"-DoutputDirectory={directory}", cwd=directory)


def debian_unpack(packages: Sequence[str], directory: Path) -> None:
    """Debian packages, unpacked under `directory` and not installed: nothing of the machine changes."""
    downloads = directory / "downloads"
    downloads.mkdir()
    try:
        run("apt-get", "-q", "download", *packages, cwd=downloads)
    except subprocess.CalledProcessError:
        if os.geteuid() != 0:
            raise
        run("apt-get", "-q", "update")
        run("apt-get", "-q", "download", *packages, cwd=downloads)
    for package in downloads.glob("*.deb"):
        run("dpkg-deb", "--extract", package, directory)
    shutil.rmtree(downloads)
