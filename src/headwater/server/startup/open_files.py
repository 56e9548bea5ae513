"""How many files this process may have open: connections, subscriptions and segments are one each."""

from __future__ import annotations

import logging
import resource

from ..config.settings import Config
from ..process.log_lines import fields

FILES_MAX = 1024 * 1024
"""More is not asked for, however much the system grants."""
SPARE_FILES = 1024
"""For segments, indexes and pipes."""

logger = logging.getLogger("headwater.server.open_files")


def raise_open_files(config: Config) -> int:
    """Take as many as the system grants: shells often give 1,024 and grant far more. Answers how many there may be,
    and warns where the configured connections need more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    needed = config.http.connections_max + config.amqp.connections_max + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        advice = "raise the limit (LimitNOFILE, ulimit -Hn), or lower http.connections_max and amqp.connections_max"
        logger.warning("the limit of open files is too low", extra=fields(allowed=soft, needed=needed, advice=advice))
    return soft
