"""Writes a file that the user names: completely or not at all, and never over another file.

An existing name is refused, including that of a link. So no command overwrites its source.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...core.errors import InvalidInput


def check_place(file: Path, *, overwrite: bool | None = None) -> None:
    """Raises InvalidInput, with the remedy, for a name under which no file can be created, or that exists.

    With `overwrite` a file may be replaced; None = the command has no such option.
    """
    if file.is_dir():
        raise InvalidInput("expected a file, got a directory", str(file))
    if not file.parent.is_dir():
        raise InvalidInput(f"there is no directory {file.parent}", str(file))
    if not os.path.lexists(file):
        return
    if not overwrite:
        remedy = "move it away" if overwrite is None else "--overwrite to replace it"
        raise InvalidInput(f"the file already exists; give another name, or use {remedy}", str(file))
    if file.exists() and not file.is_file():
        raise InvalidInput("this is a device, pipe or socket; use - for standard output", str(file))


@contextmanager
def new_file(file: Path, *, overwrite: bool | None = None) -> Iterator[BinaryIO]:
    """The file to write. It gets its name at the end, so that no reader mistakes half a file for a whole one.

    Until then it has a name that no other writer of this file uses. Raises InvalidInput as `check_place`, before and
    after, in case the name was taken meanwhile.
    """
    check_place(file, overwrite=overwrite)
    part = file.with_name(f"{file.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as raw:
            yield raw
        check_place(file, overwrite=overwrite)
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
