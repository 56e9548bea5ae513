"""A memory cgroup of its own for a server's processes: v1 or v2, where this process may make one."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class Cage:
    """A context manager: processes that `program` starts have so many bytes together, and the kernel ends who exceeds.

    Where none can be made, nothing is bounded, and `why_not` says why.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.why_not = ""
        """Empty where there is one."""
        self._group: Path | None = None

    def __enter__(self) -> Cage:
        is_v1 = (V1 / "memory.limit_in_bytes").exists()
        group = (V1 if is_v1 else V2) / f"headwater-load-{os.getpid()}-{time.monotonic_ns()}"
        try:
            if not is_v1 and "memory" not in (V2 / "cgroup.subtree_control").read_text().split():
                (V2 / "cgroup.subtree_control").write_text("+memory")
            group.mkdir()
            self._group = group
            (group / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text(str(self.bytes_max))
        except OSError as error:
            self.why_not = str(error)
            self.__exit__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._group is not None:
            for _ in range(100):  # who has just ended may still be counted
                with suppress(OSError):
                    self._group.rmdir()
                    break
                time.sleep(0.05)
            self._group = None

    def program(self, *command: str) -> tuple[str, ...]:
        """The command, whose process enters first."""
        if self._group is None:
            return command
        return ("/bin/sh", "-c", f'echo $$ > "{self._group}/cgroup.procs" && exec "$@"', "sh", *command)

    def killed(self) -> int:
        """How many processes the kernel has ended for want of memory."""
        for name in ("memory.oom_control", "memory.events"):
            with suppress(OSError, TypeError):
                lines = (self._group / name).read_text().splitlines()  # type: ignore[operator]
                return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        return 0
