"""The site of the documents, which Sphinx makes; `make site` makes it in `build/site`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .documents import ROOT

TARGET = ROOT / "build" / "site"


def build(target: Path) -> None:
    """Make the site in a directory; CalledProcessError where Sphinx has a warning."""
    with TemporaryDirectory() as doctrees:
        where = ["-c", ROOT / "docs", "-d", doctrees, ROOT, target]
        subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto", *where], check=True)


if __name__ == "__main__":
    shutil.rmtree(TARGET, ignore_errors=True)  # pages that are no more
    try:
        build(TARGET)
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
    print(f"Open {TARGET / 'index.html'}")
