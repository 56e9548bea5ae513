"""Errors for requests that do not reach a front end, in the format of that front end's standard."""

from __future__ import annotations

from ...formats.problem import Problem
from ...futoin.http import answer_problem as answer_futoin
from ...http import Exchange, Receive, Scope, Send
from ...http.asgi import answer_websocket
from ...http.exchange import PROBLEM

_FUTOIN = "/futoin/"


async def answer_in_form(exchange: Exchange, problem: Problem) -> None:
    """Answer a request."""
    if exchange.scope["path"].startswith(_FUTOIN):
        await answer_futoin(exchange, problem)
    else:
        await exchange.answer_problem(problem)


async def answer_problem(scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
    """Answer a request, or refuse a WebSocket."""
    if scope["type"] == "websocket":
        fields = [(b"content-type", PROBLEM), *problem.headers]
        await answer_websocket(scope, send, problem.status, fields, problem.to_json())
    else:
        await answer_in_form(Exchange(scope, receive, send), problem)
