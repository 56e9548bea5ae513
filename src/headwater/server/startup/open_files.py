"""The limit on open files: each connection, subscription and segment counts as one."""

from __future__ import annotations

import logging
import resource

from ..config.settings import Config
from ..process.log_lines import fields

FILES_MAX = 1024 * 1024
"""The maximum limit to set, even if the system allows more."""
SPARE_FILES = 1024
"""Reserved for segments, indexes and pipes."""

logger = logging.getLogger("headwater.server.open_files")


def raise_open_files(config: Config) -> int:
    """Raise the limit as far as the system allows: shells often set 1,024 but allow far more. Returns the limit, and
    warns if the configured connections need more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    connections = config.http.connections_max + config.amqp.connections_max
    forwards = config.home is not None and config.replica.forward  # each forwarded connection uses two files
    needed = (2 if forwards else 1) * connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        advice = "raise the limit (LimitNOFILE, ulimit -Hn), or lower http.connections_max and amqp.connections_max"
        logger.warning("the limit on open files is too low", extra=fields(allowed=soft, needed=needed, advice=advice))
    return soft
