"""Print a projection: `python -m headwater.spark.projection DIR` writes it as lines of JSON, sorted by entity."""

import sys

from .errors import ProjectionError
from .snapshot import dump


def main(arguments: list[str]) -> int:
    """Print the table at that path. Returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m headwater.spark.projection DIR", file=sys.stderr)
        return 2
    try:
        dump(arguments[0], sys.stdout.buffer)
    except ProjectionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
