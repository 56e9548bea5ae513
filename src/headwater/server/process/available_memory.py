"""The memory this process may use: the machine's, or less if a cgroup (v1 or v2) has a limit.

A process is in a cgroup, which has parents; the smallest limit of all counts. A container often sees its own cgroup as
the root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
_LIMITS = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}
"""The file with a cgroup's limit, by file system type."""


def available_memory(root: Path = _ROOT) -> int:
    """The maximum number of bytes that this process may use. `root` is where `/proc` is."""
    return min(_machine_memory(), *_cgroup_limits(root))


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Each limit of this process; empty without cgroups. A huge number means no limit (v1)."""
    yield 2**63
    try:
        cgroups = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return
    paths = {}
    for line in cgroups:
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = path
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in paths or (kind == "cgroup" and "memory" not in options.split(" ")[-1].split(",")):
            continue
        _, _, _, mounted, place, *_ = before.split(" ")
        yield from _limits_above(root / place.lstrip("/"), _within(paths[kind], mounted), _LIMITS[kind])


def _within(path: str, mounted: str) -> PurePosixPath:
    """A cgroup's path below the mounted one; the mounted one if the path is not below it."""
    try:
        return PurePosixPath(path).relative_to(mounted)
    except ValueError:
        return PurePosixPath(".")


def _limits_above(place: Path, path: PurePosixPath, name: str) -> Iterator[int]:
    for each in (path, *path.parents):
        try:
            text = (place / each / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # else "max"
            yield int(text)
