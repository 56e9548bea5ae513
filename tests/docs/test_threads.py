"""No thread or task of the server ends without somebody knowing: whoever starts one is here, with who sees to it."""

from __future__ import annotations

import re

from .documents import ROOT, text_of
from .sources import SOURCES

PACKAGE = ROOT / "src" / "headwater"
STARTS = re.compile(r"threading\.Thread\(|ThreadPoolExecutor\(|\bcreate_task\(|ensure_future\(|TaskGroup\(")
SEEN_TO = {
    "core/watch/threads.py": "begins again what failed, and tells it: for all that lasts as long as the server",
    "storage/append/sequencer.py": "committer and writer: if one fails, the process ends",
    "storage/segments/segment_log.py": "prepares a segment; if it fails, the roll prepares it and reports",
    "spark/sink/data_sink.py": "its results are asked for",
    "storage/engine.py": "closes an engine whose lock is lost; what it raises is logged",
    "storage/state/change_thread.py": "whoever asked for a change is told what it raised; the rest is logged",
    "storage/disk/summed_copy.py": "of one backup or restore, which waits for its results",
    "storage/staging/commit.py": "its results are asked for",
    "server/app.py": "awaited by who starts the server",
    "server/replicas/frame_push.py": "of one request, and ends with it",
    "server/front/forwarding/forwarder.py": "of one request, and ends with it",
    "server/process/service_manager.py": "extends the start timeout of systemd; without it the start may time out",
    "server/users/guard.py": "checks of passwords and answers are awaited by whoever logs in",
    "server/httpd/websocket.py": "of one connection, and ends with it",
    "formats/arrow/lazy.py": "a failure is printed; reads go on without Arrow",
    "server/bulk/early_connections.py": "of one connection, and ends with it",
    "server/bulk/connections.py": "if it fails, the log says so, and the guard of memory goes on",
    "server/bulk/memory_guard.py": "if it fails, the bulk process ends, and another is started",
    "server/bulk/link.py": "its end ends the bulk process; an answer tells its own error",
    "server/bulk/segment_sharing.py": "where it does not answer, a task of Spark reads over Flight",
    "server/bulk/supervisor.py": "waited for",
    "server/bulk/calls.py": "its results are awaited",
    "server/httpd/connection.py": "of one connection, and ends with it",
    "server/httpd/runner.py": "of requests; what one raises is logged and answered",
    "server/users/oidc/keys.py": "a fetch is awaited by whoever logs in with its key",
    "server/monitoring/span_exporter.py": "waited for, a few seconds; ends with the process",
    "management/server.py": "one query of a client, whose request waits for it",
    "server/process/event_loop.py": "opens one connection; what its peer does wrong ends it",
    "cli/bench.py": "its results are asked for",
    "amqp/streams/nodes.py": "of one connection or log; what it raises is logged by asyncio, or awaited",
    "amqp/connections/transport.py": "of one connection, and ends with it",
    "amqp/streams/node.py": "what they cannot store, the next tick stores; awaited",
    "core/loop/group_commit.py": "a commit is awaited by all who share it",
    "futoin/websocket.py": "of one connection, and ends with it",
    "futoin/functions/push.py": "closes its connection when it fails, so that the consumer comes again",
    "cne/feed.py": "its loop logs what a turn raises, and goes on",
    "cne/delivery/endpoint.py": "its loop logs what a turn raises, and goes on",
    "cne/service.py": "its loop logs what a turn raises, and goes on",
    "cne/supervision.py": "its loop logs what a turn raises, and goes on",
    "http/outgoing/resolver.py": "one look-up of a name; awaited by whoever connects to it",
    "dcb/reads/subscribe.py": "of one request, and ends with it",
    "dcb/reads/pieces.py": "of one request, and ends with it",
    "dcb/counts/work_budget.py": "of one request, and ends with it",
    "dcb/workers.py": "of one request, and ends with it",
    "client/sync/work.py": "in programs of users; what it raises is raised where they iterate",
    "client/aio/work.py": "in programs of users; what it raises is raised where they iterate",
    "console/stream.py": "of one request, and ends with it",
    "flight/server/server.py": "waited for",
    "client/bulk.py": "in programs of users; its results are asked for",
    "spark/session/java.py": "in programs of users; ends with the Java that it listens to",
    "spark/pipeline/run.py": "in pipelines; its results are asked for",
    "spark/archive/upkeep.py": "in pipelines; what it raises ends the run",
}
"""Who sees to what each module starts. What lasts as long as the server is started by `Threads`."""


def test_whoever_starts_a_thread_or_a_task_says_who_sees_to_it() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in SOURCES if STARTS.search(text_of(path))}
    assert found == SEEN_TO.keys()
