"""What `eventsourcing` makes of the name of this module: the factory of recorders."""

from __future__ import annotations

from eventsourcing.dcb.persistence import DCBInfrastructureFactory
from eventsourcing.persistence import TrackingRecorder
from eventsourcing.utils import Environment, EnvType

from .errors import as_theirs
from .opening import opened
from .recorder import HeadwaterRecorder


class HeadwaterFactory(DCBInfrastructureFactory[TrackingRecorder]):
    """Makes recorders of the one log that the environment names (`opening`); `close` ends them all."""

    def __init__(self, env: Environment | EnvType | None) -> None:
        """Raises InfrastructureFactoryError, and OperationalError where the log cannot be had."""
        super().__init__(env)
        with as_theirs:
            self._opened = opened(self.env)

    def dcb_recorder(self) -> HeadwaterRecorder:
        """A recorder of the log."""
        return HeadwaterRecorder(self._opened.log)

    def close(self) -> None:
        """Close the connections, or the log in this process. A second time does nothing."""
        close, self._opened = self._opened.close, self._opened._replace(close=_nothing)
        close()


def _nothing() -> None:
    """It is closed already."""
