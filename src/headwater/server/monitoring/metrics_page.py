"""`/metrics`, for users with the right to see it.

Metrics name logs and consumers, so they need an authenticated user as soon as there are users: any, or, with
`http.metrics_need_right`, one with `metrics:*` or `manage:*`.
"""

from __future__ import annotations

import asyncio

from ...core.access import Forbidden, Guard, LoginNotChecked, Right, Unauthenticated, User
from ...http import Exchange, Host, Receive, Scope, Send
from ...http.problems import problem_of
from ..front.health import METRICS, NO_STORE, Page
from .metrics import CONTENT_TYPE, ServerCollector, scrape


class Metrics(Page):
    """The ASGI application behind METRICS."""

    def __init__(self, guard: Guard, collector: ServerCollector, *, needs_right: bool = False) -> None:
        """`needs_right`: a user without the right to see them, or to manage the server, is refused."""
        self._host, self._collector, self._needs_right = Host(guard), collector, needs_right

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; it is counted."""
        scope["route"] = METRICS
        await super().__call__(scope, receive, send)

    async def answer(self, exchange: Exchange) -> None:
        """The metrics, to who may see them."""
        try:
            self._check(await self._host.user(exchange))
        except (Unauthenticated, LoginNotChecked, Forbidden) as error:
            problem = problem_of(error)
            assert problem is not None, error
            await exchange.answer_problem(problem)
            return
        body = await asyncio.to_thread(scrape, self._collector)
        await exchange.answer(200, body, CONTENT_TYPE.encode(), (NO_STORE,))

    def _check(self, user: User) -> None:
        """Raises Forbidden."""
        if self._needs_right and not user.may(Right.MANAGE, "*"):
            self._host.guard.authorize(user, Right.METRICS, "*")
