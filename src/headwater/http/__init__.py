"""Shared code of HTTP front ends, on plain ASGI: requests, answers, routes, problems, authentication, and open logs.

A front end adds only its handlers: `tests/http/test_a_front_end.py` is the smallest one. Nothing here or in a front end
depends on the HTTP server below.
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
