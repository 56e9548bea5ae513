"""The C files of the extension module, and the digest that the compiled library carries; the build has it from here."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent


def sources(directory: Path = HERE) -> list[Path]:
    """The C files and headers in it, by name; none where a wheel was installed."""
    return sorted(path for path in directory.iterdir() if path.suffix in (".c", ".h"))


def digest(files: list[Path]) -> str:
    """What changes when one of these files does, or its name."""
    whole = sha256()
    for path in files:
        content = path.read_bytes()
        whole.update(f"{path.name} {len(content)}\n".encode() + content)
    return whole.hexdigest()[:16]
