"""Persistence module for `eventsourcing` (9.5): runs its DCB applications on a log.

with DCBApplication(env={"PERSISTENCE_MODULE": "headwater.eventsourcing"}) as app:
    app.recorder.append([DCBEvent(type="OrderPlaced", data=b"{}", tags=["order:17"])])
"""

from .factory import HeadwaterFactory
from .recorder import HeadwaterRecorder, HeadwaterSubscription

__all__ = ["HeadwaterFactory", "HeadwaterRecorder", "HeadwaterSubscription"]
