"""How event logs are kept: on disk (`Engine`) or in memory (`MemoryStore`, the reference).

The format on disk is described in docs/data-file-format.md.
"""

from .backup import BackupReport, backup, restore
from .check import CheckReport, LogCheck, accept_loss, adopt_log, check_directory
from .clock_repair import Distrusted, repair_clock
from .engine import Engine
from .log import StoredLog
from .memory import MemoryLog, MemoryState, MemoryStore
from .state import SqliteState
from .state_check import StateCheck
from .state_loss import accept_state_loss

__all__ = [
    "BackupReport",
    "CheckReport",
    "Distrusted",
    "Engine",
    "LogCheck",
    "MemoryLog",
    "MemoryState",
    "MemoryStore",
    "SqliteState",
    "StateCheck",
    "StoredLog",
    "accept_loss",
    "accept_state_loss",
    "adopt_log",
    "backup",
    "check_directory",
    "repair_clock",
    "restore",
]
