"""Creates a directory atomically. It is written next to its final location, and renamed at the end."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow.parquet as pq

from ....core.errors import InvalidInput
from ....formats.settings.local_paths import check_local
from ...durable import sync_one

MANIFEST, SUCCESS = "_manifest.json", "_SUCCESS"


def check_target(target: str) -> Path:
    """The path. Raises InvalidInput if something exists there, or if it is not on this machine."""
    check_local(target, "--to", "a directory")
    path = Path(target).absolute()
    if path.exists():
        raise InvalidInput(f"{path} already exists; an export creates a new directory", "--to")
    return path


class NewDirectory:
    """A context: inside it, steps are added; `finish` gives the directory its name. Otherwise nothing is left.

    Entering it raises InvalidInput if another export is writing the same directory.
    """

    def __init__(self, target: Path, ending: str) -> None:
        self.target, self.ending = target, ending
        self._part = target.with_name(f".{target.name}.part")
        """Files left by a killed export under this name are removed."""
        self._lock = -1
        self._files: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._lock = self._open()
        try:
            self._take()
            for left in self._part.iterdir():
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def _open(self) -> int:
        while True:
            self._part.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another export has just ended, and removed it
                return os.open(self._part, os.O_RDONLY)

    def _take(self) -> None:
        """Lock the directory, if the file system supports locks for directories (NFS does not)."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_taken = not self._is_own()
        except BlockingIOError:
            is_taken = True
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.ENOTSUP):
                raise
            is_taken = False
        if is_taken:
            raise InvalidInput(f"another export is writing {self.target} now", "--to")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_own():  # otherwise it already has its final name
            shutil.rmtree(self._part, ignore_errors=True)
        os.close(self._lock)

    def _is_own(self) -> bool:
        """Whether the opened directory is still the one next to the target."""
        return self._part.exists() and os.path.samestat(os.fstat(self._lock), self._part.stat())

    def step(self) -> str:
        """Where to write the next step. Files left by another attempt are removed."""
        shutil.rmtree(self._part / "_step", ignore_errors=True)
        return str(self._part / "_step")

    def add(self, first: int) -> None:
        """Take over the step's files, which begin with event `first`, and give them names in the order of the
        events.
        """
        step = self._part / "_step"
        for number, path in enumerate(sorted(step.rglob("part-*"), key=lambda path: (path.name, path))):
            rows = pq.read_metadata(path).num_rows if self.ending.endswith("parquet") else None
            if rows == 0 or not path.stat().st_size:
                continue
            name = path.relative_to(step).parent / f"events-{first:018}-{number:05}.{self.ending}"
            (self._part / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, self._part / name)
            about = {"name": str(name), "bytes": (self._part / name).stat().st_size}
            self._files.append(about if rows is None else {**about, "events": rows})
        shutil.rmtree(step)

    def finish(self, manifest: Mapping[str, object]) -> int:
        """Write the manifest, and give the directory its name. Returns the size of its files in bytes."""
        said = json.dumps({**manifest, "files": self._files}, indent=1, ensure_ascii=False)
        (self._part / MANIFEST).write_text(said + "\n", encoding="utf-8")
        (self._part / SUCCESS).touch()
        for path in [*self._part.rglob("*"), self._part]:
            sync_one(path)
        check_target(str(self.target))
        os.rename(self._part, self.target)
        sync_one(self.target.parent)
        return sum(file["bytes"] for file in self._files)
