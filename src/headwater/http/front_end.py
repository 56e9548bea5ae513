"""An HTTP front end as an ASGI application: the frame around every handler (stopping, errors, disconnected clients)."""

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
    """Answer 503 with this detail and a Retry-After; `answer` has the front end's format."""
    if scope["type"] == "websocket":
        await refuse_websocket(send, detail, SERVICE_RESTART)
    else:
        problem = problem_of(Unready(detail))
        assert problem is not None, "it is in the table"
        await answer(Exchange(scope, receive, send), problem)


class FrontEnd(Generic[H, E]):
    """Finds the handler of each request and answers the errors it raises: by default with problem documents.

    When a handler is called, `find` has set the request's limit (`body_bytes_max`), but no body has been read.

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
        """`find` raises HttpError if there is no handler; `logger` gets internal errors.

        `exchange` is the front end's subclass of Exchange.
        """
        self._host, self._find, self._logger, self._exchange = host, find, logger, exchange
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3. A standalone server's `lifespan` starts and ends it; if it is mounted, the parent must do so."""
        if scope["type"] == "websocket":
            await refuse_websocket(send)
            return
        if scope["type"] != "http":
            await live(receive, send, self.start, self._end)
            return
        exchange = self._exchange(scope, receive, send)
        try:
            handler = self._find(exchange)
            if self._is_stopping:
                raise Stopping
            await handler(self._host, exchange)
        except Disconnected:
            return
        except Exception as error:
            await self.refuse(exchange, error)

    async def start(self) -> None:
        """Prepare for requests. Most front ends have nothing to prepare."""

    def stop(self) -> None:
        """End the streams cleanly, and refuse new requests with 503."""
        self._is_stopping = True
        self._host.stopping.set()

    async def close(self) -> None:
        """Release the logs; their owner closes them."""
        self._host.close()

    async def refuse(self, exchange: E, error: Exception) -> None:
        """Answer an error raised by a handler, or before it. Raises BrokenOff if an answer has begun."""
        problem, asked = problem_of(error), (exchange.scope["method"], exchange.scope["path"])
        if problem is None:
            self._logger.exception("%s %s failed: internal error", *asked)
        elif problem.status == 500:
            self._logger.error("%s %s failed with a storage error: %s", *asked, error)
        await exchange.answer_problem(problem or INTERNAL)

    async def _end(self) -> None:
        self.stop()
        await self.close()
