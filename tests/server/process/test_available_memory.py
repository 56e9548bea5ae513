"""How much memory a process may use: what its cgroups and the machine allow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.server.process.available_memory import available_memory

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 2**20
V2_MOUNT = "30 23 0:26 {mounted} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "36 32 0:33 {mounted} /sys/fs/cgroup/memory rw,nosuid shared:17 - cgroup cgroup rw,memory"
OTHER_MOUNT = "35 32 0:32 / /sys/fs/cgroup/cpu rw,nosuid shared:16 - cgroup cgroup rw,cpu,cpuacct"


def machine(root: Path, cgroup: str, mounts: str, limits: dict[str, str]) -> Path:
    """What /proc and /sys/fs/cgroup are there; `limits` by file."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text(mounts)
    for name, text in limits.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(("cgroup", "mounted", "limits", "expected"), [
    ("0::/a/b\n", "/", {"a/b/memory.max": str(512 * MIB), "a/memory.max": "max"}, 512 * MIB),
    ("0::/a/b\n", "/", {"a/b/memory.max": "max", "a/memory.max": str(256 * MIB)}, 256 * MIB),
    ("0::/a/b\n", "/", {"a/b/memory.max": "max"}, MACHINE),
    ("0::/\n", "/", {"memory.max": str(128 * MIB)}, 128 * MIB),
    ("0::/docker/1\n", "/docker/1", {"memory.max": str(128 * MIB)}, 128 * MIB),
    ("0::/../elsewhere\n", "/", {"memory.max": str(128 * MIB)}, 128 * MIB),
    ("", "/", {}, MACHINE),
])  # fmt: skip
def test_the_smallest_limit_of_the_cgroups_above_counts(
    tmp_path: Path, cgroup: str, mounted: str, limits: dict[str, str], expected: int
) -> None:
    root = machine(tmp_path, cgroup, V2_MOUNT.format(mounted=mounted), limits)
    assert available_memory(root) == expected


@pytest.mark.parametrize(("limit", "expected"), [(str(300 * MIB), 300 * MIB), (str(2**63 - 4096), MACHINE)])
def test_the_first_version_of_cgroups_counts_too(tmp_path: Path, limit: str, expected: int) -> None:
    cgroup = "5:cpu,cpuacct:/x\n4:memory:/x\n0::/y\n"
    mounts = "\n".join((OTHER_MOUNT, V1_MOUNT.format(mounted="/")))
    root = machine(tmp_path, cgroup, mounts, {"memory/x/memory.limit_in_bytes": limit, "cpu/x/memory.max": "1"})
    assert available_memory(root) == expected


def test_without_cgroups_it_is_the_machine_s(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == MACHINE
    assert 0 < available_memory() <= MACHINE
