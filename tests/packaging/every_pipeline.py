"""Every pipeline of an environment, by its command: `python every_pipeline.py HTTP GRPC`, with its Python.

All run in this process, one after the other, in one session of Spark: its workers take longer to start than to work.
One that is not in `COMMANDS` fails it.
Prints a line for each command: the pipeline, how it ended, and how many events it has been through.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from headwater.client import connect
from headwater.core import Event
from headwater.spark.commandline import main
from headwater.spark.pipelines import load, names

SMALL = ["--master", "local[1]", "--conf", "spark.driver.memory=512m", "--progress", "none", "--json"]
FOLD = "def count(state, event):\n    return {'events': (state or {'events': 0})['events'] + 1}\n"
COMMANDS = (
    "import --file shop.ndjson --log shop --create",
    "copy --from shop --to copied --checkpoint copy --once",
    "aggregate --from shop --from copied --to all --checkpoint aggregate --once",
    "archive --log shop --table archive --once --compact",
    "project --log shop --tag order --fold shop_fold:count --table projection --once --dump projection.ndjson",
    "metrics --log cne --measure values --checkpoint values --table values-table --once --window 1s --late 0s",
    "metrics --log cne --measure states --checkpoint states --table states-table --once --window 1s --late 0s",
    "export --log shop --to exported --flatten",
    "export --log shop --to exported-csv --format csv",
    "report --log shop --to shop.html --states order",
    "sql --query 'SELECT sum(payload.n) AS numbers FROM headwater.shop' --payload-schema 'shop=n bigint' --logs shop",
)
"""With all that needs a library or a worker of its own: an option is not enough to be here."""


def run_all(http: str, grpc: str) -> None:
    """See the module."""
    missing = set(names()) - {command.split()[0] for command in COMMANDS}
    assert not missing, f"no command of COMMANDS runs {', '.join(sorted(missing))}"
    prepare(http)
    with patch.object(SparkSession, "stop"):
        for command in COMMANDS:
            summary = outcome([*shlex.split(command), "--url", grpc, *SMALL])
            been_through = summary["events"] or summary["details"].get("rows", 0)  # Spark does not say it of a question
            print(command.split()[0], summary["ending"], been_through, flush=True)
    SparkSession.builder.getOrCreate().stop()


def prepare(http: str) -> None:
    """Files and logs for all of them."""
    lines = [{"type": "Placed", "tags": [f"order:{n % 3}"], "data": json.dumps({"n": n})} for n in range(10)]
    Path("shop.ndjson").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    Path("shop_fold.py").write_text(FOLD, encoding="utf-8")
    with connect(http) as server:
        for log in ("copied", "all", "cne"):
            server.create(log)
        server.log("cne").append([notification(n) for n in range(10)])


def notification(second: int) -> Event:
    """A Cloud Native Event with a state and a number, whose time is that second of a minute."""
    named = {"ResourceAddress": "/cluster/node/sync"}
    state = {"data_type": "notification", "value_type": "enumeration", "value": ["LOCKED", "FREERUN"][second % 2]}
    metric = {"data_type": "metric", "value_type": "decimal64.3", "value": str(second)}
    data = {"version": "1.0", "values": [named | state, named | metric]}
    time = {"time": f"2026-01-01T00:00:{second:02}Z"}
    return Event("event.sync.sync-status.synchronization-state-change", json.dumps(data).encode(), (), "", "/s", time)


def outcome(arguments: list[str]) -> dict[str, Any]:
    """The summary of a command that ends well."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(arguments, "every_pipeline")
    assert code == 0, f"{arguments[0]} ended with {code}: {said.getvalue()}"
    summary: dict[str, Any] = json.loads(said.getvalue().splitlines()[-1])
    assert load(arguments[0]).name == summary["pipeline"]
    return summary


if __name__ == "__main__":
    run_all(*sys.argv[1:])
