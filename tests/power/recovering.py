"""`python -m tests.power.recovering DATA ORDERLY`: open a directory, tend its logs once, and end, in order or not.

The power fails a second time in it: what is repaired must not hurt what was whole.
"""

from __future__ import annotations

import os
import sys

from headwater.storage import Engine

from .watched import be_alone, be_small


def main(data: str, is_orderly: str) -> None:
    """See the module."""
    be_small()
    be_alone()
    engine = Engine(data, maintains=False)
    for name in engine.names():
        engine.open(name)
    engine.maintain()
    if int(is_orderly):
        engine.close()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
