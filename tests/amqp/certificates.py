"""Certificates for the tests of TLS, made by the program openssl."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.interop.install import unavailable

_REQUEST = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"


class Certificate(NamedTuple):
    """A certificate and its key, each in a PEM file."""

    file: Path
    key: Path


class Authority:
    """A certification authority."""

    def __init__(self, directory: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            unavailable("the program openssl makes the certificates, and is not here")
        self._directory = directory
        self.own = self._make(name, "basicConstraints=critical,CA:TRUE")

    def issue(self, name: str, alternatives: str = "") -> Certificate:
        """A certificate of that common name, and of subject alternative names like `DNS:localhost,IP:127.0.0.1`."""
        extensions = ["basicConstraints=CA:FALSE"]
        if alternatives:
            extensions.append(f"subjectAltName={alternatives}")
        return self._make(name, *extensions, signed=["-CA", str(self.own.file), "-CAkey", str(self.own.key)])

    def context(self, own: Certificate | None = None) -> ssl.SSLContext:
        """A client's TLS that trusts the authority, and shows a certificate of its own."""
        context = ssl.create_default_context(cafile=self.own.file)
        if own is not None:
            context.load_cert_chain(own.file, own.key)
        return context

    def _make(self, name: str, *extensions: str, signed: list[str] | None = None) -> Certificate:
        stem = name.replace(" ", "-")
        made = Certificate(self._directory / f"{stem}.pem", self._directory / f"{stem}.key")
        options = [option for extension in extensions for option in ("-addext", extension)]
        files = ["-out", str(made.file), "-keyout", str(made.key)]
        command = [*_REQUEST.split(), "-subj", f"/CN={name}", *options, *files, *(signed or [])]
        subprocess.run(command, check=True, capture_output=True)
        return made
