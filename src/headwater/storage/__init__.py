"""How event logs are kept: on disk (`Engine`) or in memory (`MemoryStore`, the reference).

The format on disk is described in docs/data-file-format.md.
"""

from .backup import BackupReport, backup, restore
from .engine import Engine
from .log import StoredLog
from .memory import MemoryLog, MemoryState, MemoryStore
from .repair.check import CheckReport, accept_loss, adopt_log, check_directory
from .repair.clock import Distrusted, repair_clock
from .repair.log_check import LogCheck
from .state.check import StateCheck
from .state.loss import accept_state_loss
from .state.sqlite_state import SqliteState

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
