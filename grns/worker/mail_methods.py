"""What a handler asks other agents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from grns.model.duration import seconds_named
from grns.model.mail import AgentReply
from grns.worker.async_only import async_only
from grns.worker.wait_methods import WaitMethods

_LONGEST_SECONDS = 31 * 86_400.0


class MailMethods(WaitMethods):
    """The part of a `Context`, and of a task of an HTTP worker, that asks agents."""

    if TYPE_CHECKING:

        async def _send_mail(
            self,
            type: str,
            payload: Mapping[str, Any] | None,
            *,
            to: str,
            about: str | None,
            message_id: str,
            expires: float,
        ) -> None: ...

        async def _document(self, value: Any) -> Any: ...

    @async_only
    async def ask_agent(
        self,
        agent: str,
        type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        about: str | None = None,
        timeout: float | timedelta | None = None,
    ) -> AgentReply:
        """Send an agent mail, and wait for its answer. Meanwhile the slot is free, as in `sleep`.

        It is sent once, and the answer is a step: later attempts get the same one. The agent answers with
        `client.mail.send(type, payload, reply_to=mail)`, whether the task runs or not.

        Args:
            agent: name of the agent. It gets the message also if it is away now.
            type: what it is, such as `review_request`.
            payload: a JSON object of at most 256 KiB.
            about: what the conversation is about. Defaults to the id of this task.
            timeout: maximum time to wait, in seconds or as a `timedelta`. Defaults to 31 days, which is also
                the most: a message is kept for so long.

        Raises:
            NotFoundError: there is no such agent.
            WaitTimeoutError: it has not answered in time. Later attempts raise it, too.
            InvalidInputError: an argument is invalid.

        Example:
            reply = await ctx.ask_agent("reviewer", "review_request", {"branch": branch}, timeout=3600)
            if not reply.payload["is_fine"]:
                raise grns.Fail(f"refused by {reply.from_agent}")
        """
        seconds = seconds_named("timeout", timeout, code="bad_handler")
        most = _LONGEST_SECONDS if seconds is None else min(seconds, _LONGEST_SECONDS)
        # Before the message: a worker that dies in between sends the same one again.
        message_id = await self.step(f"ask {agent} {type}", _new_id)

        async def send() -> None:
            await self._send_mail(
                type, payload, to=agent, about=about, message_id=message_id, expires=max(most, 1.0)
            )

        await self.step(f"ask {agent} {type}, sent", send)
        reply = await self.wait_for_signal(f"reply.{message_id}", timeout=most)
        return AgentReply(**{**reply, "payload": await self._document(reply["payload"])})


async def _new_id() -> str:
    return str(uuid4())
