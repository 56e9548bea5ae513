"""An HTTP front end as an ASGI application: the frame around every handler (stopping, errors, clients that leave)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ..formats.problem import Problem
from .asgi import SERVICE_RESTART, Receive, Scope, Send, live, refuse_websocket
from .errors import Disconnected, Stopping, Unready
from .exchange import Exchange
from .host import Host
from .problems import INTERNAL, problem_of

H = TypeVar("H", bound=Host)
E = TypeVar("E", bound=Exchange)
Handler = Callable[[H, E], Awaitable[None]]


async def refuse_unready(
    scope: Scope,
    receive: Receive,
    send: Send,
    detail: str,
    answer: Callable[[Exchange, Problem], Awaitable[None]] = Exchange.answer_problem,
) -> None:
    """Answer 503 with this detail, and when to try again; `answer` has the form of the room that is asked."""
    if scope["type"] == "websocket":
        await refuse_websocket(send, detail, SERVICE_RESTART)
    else:
        problem = problem_of(Unready(detail))
        assert problem is not None, "it is in the table"
        await answer(Exchange(scope, receive, send), problem)


class FrontEnd(Generic[H, E]):
    """Finds the handler of each request, and answers what it raises: by default, with problem documents.

    When a handler is called, `find` has set what the request may cost (`body_bytes_max`), and none of it was read.

    Call `start` before the first request, `stop` before the HTTP server waits for its connections to end, and `close`
    after that.
    """

    def __init__(
        self,
        host: H,
        find: Callable[[E], Handler[H, E]],
        logger: logging.Logger,
        exchange: Callable[[Scope, Receive, Send], E],
    ) -> None:
        """`find` raises HttpError where there is no handler; `logger` gets what is a fault of ours.

        `exchange` is the room's kind of Exchange.
        """
        self._host, self._find, self._logger, self._exchange = host, find, logger, exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3. The `lifespan` of a server of its own starts and ends it; who mounts it must do so."""
        if scope["type"] == "http":
            await self._serve(self._exchange(scope, receive, send))
        elif scope["type"] == "websocket":
            await refuse_websocket(send)
        else:
            await live(receive, send, self.start, self._end)

    async def start(self) -> None:
        """Be ready for requests; most front ends are."""

    def stop(self) -> None:
        """End the streams in order, and refuse new requests with 503."""
        self._host.stopping.set()

    async def close(self) -> None:
        """Let go of the logs, which stay open for their owner to close."""
        self._host.close()

    async def refuse(self, exchange: E, error: Exception) -> None:
        """Answer what a handler raised, or what kept a request from it. Raises RuntimeError if an answer has begun."""
        problem = problem_of(error)
        if problem is None:
            self._logger.exception("%s %s failed", exchange.scope["method"], exchange.scope["path"])
        elif problem.status == 500:
            self._logger.error("%s %s: %s", exchange.scope["method"], exchange.scope["path"], error)
        await exchange.answer_problem(problem or INTERNAL)

    async def _end(self) -> None:
        self.stop()
        await self.close()

    async def _serve(self, exchange: E) -> None:
        try:
            handler = self._find(exchange)
            if self._host.stopping.is_set():
                raise Stopping
            await handler(self._host, exchange)
        except Disconnected:
            return
        except Exception as error:
            await self.refuse(exchange, error)
