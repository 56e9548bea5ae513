"""A table into a log, from Python: repeatable, so that running it twice adds nothing.

python examples/load.py [http://127.0.0.1:8080]
"""

import sys

from headwater.client import append_all, connect
from headwater.core import Query
from headwater.formats.files.tabular import TableMapping, table_events

TABLE = """\
activity,timestamp,case,resource
register request,2024-05-01T09:00:00Z,1,Pete
check ticket,2024-05-01T11:15:00Z,1,Mike
register request,2024-05-02T08:30:00Z,2,Pete
reject request,2024-05-03T10:00:00Z,1,Sara
"""


def main(url: str) -> None:
    """Load it twice, and ask for one case."""
    mapping = TableMapping("requests.csv", tags=(("case", "case"), ("resource", "resource")))
    with connect(url) as server:
        log = server.create("requests")
        for _ in range(2):
            done = append_all(log, table_events(TABLE.splitlines(keepends=True), mapping))
            print(f"{done.appended} appended, {done.stored} already existed")
        for event in log.read(Query.where(tags=["case:1"])):
            print(f"{event.attributes['time']}  {event.type}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
