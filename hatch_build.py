"""The one part of the build that is not Python: the C files of `src/headwater/speedups`, compiled together into one
extension module for the Python that builds.

Where there is no C compiler, or Python's headers are missing, the build succeeds without it and says so: Python does
the same, slower. `HATCH_BUILD_NO_HOOKS=true`, hatchling's own variable, leaves it out on purpose.
"""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = Path("src/headwater/speedups")
MODULE = "_native"
FLAGS = ("-O3", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")


class Speedups(BuildHookInterface):
    """Puts the extension module into the wheel, or for an editable install beside its sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile. `version` is hatchling's word for the kind of wheel: `standard` or `editable`."""
        self._work = tempfile.TemporaryDirectory(prefix="headwater-build-")
        place = Path(self.root) / PLACE
        beside = place / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
        library = Path(self._work.name) / beside.name
        if (problem := compiled(place, library)) is not None:
            self.app.display_warning(f"headwater is built as pure Python, without {PLACE}/*.c: {problem}")
            if version == "editable":
                beside.unlink(missing_ok=True)
        elif version == "editable":
            new = beside.with_name(f".{beside.name}.new")
            shutil.copyfile(library, new)
            new.replace(beside)  # a server that runs keeps the file that it has mapped
        else:
            build_data["force_include"][str(library)] = str(beside.relative_to(Path(self.root) / "src"))
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel has a copy of."""
        self._work.cleanup()


def compiled(place: Path, library: Path) -> str | None:
    """Compile the C files of a directory into an extension module; what kept it from being made, or None.

    The commands are those that this Python was built with; `CC`, `CFLAGS` and `LDFLAGS` of the environment are heeded.
    """
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "")
    if not linker:
        return "this Python does not say which C compiler it was built with"
    if compiler := shlex.split(os.environ.get("CC", "")):
        linker[:1] = compiler
    options = " ".join(sysconfig.get_config_var(name) or "" for name in ("CFLAGS", "CCSHARED"))
    own, linked = (shlex.split(os.environ.get(name, "")) for name in ("CFLAGS", "LDFLAGS"))
    knowing = runpy.run_path(str(place / "sources.py"))
    files = knowing["sources"](place)
    command = [
        *linker, *shlex.split(options), *FLAGS, f'-DSOURCES_DIGEST="{knowing["digest"](files)}"', *own,
        "-I", sysconfig.get_path("include"), *(str(file) for file in files if file.suffix == ".c"),
        "-o", str(library), *linked,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        return f"the C compiler {linker[0]} cannot be run ({error.strerror})"
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
        return f"{linker[0]} ended with {done.returncode}: {said[0].strip()}"
    return None
