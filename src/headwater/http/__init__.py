"""What HTTP front ends share, on plain ASGI: requests and answers, routes, problems, who asks, and open logs.

A front end needs no more than its handlers: `tests/http/test_a_front_end.py` is the smallest one. Nothing here, nor
in a front end, knows which server speaks HTTP below.
"""

from .asgi import Application, Header, Message, Receive, Scope, Send, refuse_websocket
from .exchange import JSON, Exchange
from .front_end import FrontEnd, refuse_unready
from .host import Host, LogHost
from .routing import Routes

__all__ = [
    "JSON",
    "Application",
    "Exchange",
    "FrontEnd",
    "Header",
    "Host",
    "LogHost",
    "Message",
    "Receive",
    "Routes",
    "Scope",
    "Send",
    "refuse_unready",
    "refuse_websocket",
]
