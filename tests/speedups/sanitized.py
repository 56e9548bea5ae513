"""`python -m tests.speedups.sanitized SECONDS`: the fuzzer over an extension that gcc's sanitizers watch.

A wheel is built with the address and undefined-behaviour sanitizers, as `pip wheel` builds any, and unpacked. The
first access beyond an object, use after it was freed, or undefined operation ends the fuzzer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ..packaging.environments import ROOT, built_wheel

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g"


def package(directory: Path) -> Path:
    """The package with such an extension, unpacked."""
    wheel = built_wheel(directory / "dist", CC="gcc", CFLAGS=FLAGS)
    with zipfile.ZipFile(wheel) as content:
        content.extractall(directory / "package")
    [library] = (directory / "package" / "headwater" / "speedups").glob("*.so")
    assert b"__asan_init" in library.read_bytes(), "it was compiled without the sanitizers"
    return directory / "package"


def environment(place: Path) -> dict[str, str]:
    """In which Python finds that package, and its extension the sanitizers. Each object has memory of its own."""
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return os.environ | {
        "PYTHONPATH": str(place),
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }


def main() -> int:
    """See the module."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "tests.speedups.fuzz", *sys.argv[1:]]
        return subprocess.run(command, cwd=ROOT, env=environment(package(Path(directory)))).returncode


if __name__ == "__main__":
    sys.exit(main())
