"""How an HTTP worker ends an attempt."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from grns.agent.blob_methods import BlobMethods
from grns.agent.steps import suspension_body
from grns.errors import Fail, InvalidInputError, Retry
from grns.model.blob import JSON_TYPE, as_document, kept_by
from grns.model.failure import clean, error_message, frames_of
from grns.model.json import Limits, dumps
from grns.model.outcome import Suspension
from grns.model.retry import asked_seconds

if TYPE_CHECKING:
    from grns.agent.task import AgentTask


# What can be sent at all: how much, the API says.
_RESULTS = Limits(document_bytes=2**31, depth=500, nodes=2**31)


class OutcomeMethods(BlobMethods):
    """The methods of `AgentClient` that write outcomes."""

    if TYPE_CHECKING:

        def forget(self, task: AgentTask) -> None: ...

    async def complete_task(self, task: AgentTask, result: Any = None) -> str:
        """End a task as succeeded. You can repeat the call: the outcome is written once.

        Args:
            task: the claimed task.
            result: a JSON value. Of more than 256 KiB it is kept as a blob, and the task has the reference.

        Returns:
            `succeeded`.

        Raises:
            LeaseLostError: the lease has expired.
            InvalidInputError: the result cannot be stored.
            UnavailableError: the API cannot be reached; call again.
        """
        try:
            text = dumps(result, _RESULTS)
        except (InvalidInputError, TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError("bad_result", f"the result is no JSON: {error}") from error
        if len(body := text.encode()) > Limits().document_bytes:
            result = as_document(await self.put_blob(body, media_type=JSON_TYPE), kept_by(text))
        return await self._end(task, "complete", {"result": result})

    async def fail_task(
        self,
        task: AgentTask,
        error: BaseException | str,
        *,
        retry: bool | None = None,
        after: Any = None,
        backoff: float | None = None,
        error_class: str | None = None,
    ) -> str:
        """End an attempt as failed.

        Args:
            task: the claimed task.
            error: exception or message. `Retry` and `Fail` bring the following arguments with them.
            retry: whether another attempt may run. Defaults to True, except for `Fail`.
            after: delay before the next attempt in seconds, or a `timedelta`. Defaults to the backoff.
            backoff: the backoff in seconds, unless the task has one. Defaults to `grns.Backoff()`.
            error_class: name under which issues group the failure. Defaults to the exception's class.

        Returns:
            The status of the task: `retry_wait`, `dead`, `failed` or `cancelled`.

        Raises:
            LeaseLostError: the lease has expired.
            UnavailableError: the API cannot be reached; call again.
        """
        message = clean(error) if isinstance(error, str) else error_message(error)
        frames = [] if isinstance(error, str) else frames_of(error, module="__main__").lines()
        named = error_class or (error.error_class if isinstance(error, (Retry, Fail)) else None)
        body = {
            "error": {
                "class": clean(str(named or ("error" if isinstance(error, str) else type(error).__name__)))[
                    :255
                ],
                "message": message[:4000],
                "frames": [clean(frame)[:1000] for frame in frames],
            },
            "retry": not isinstance(error, Fail) if retry is None else retry,
            "retry_after_seconds": asked_seconds(error.after if isinstance(error, Retry) else after),
            "backoff_seconds": backoff,
        }
        return await self._end(task, "fail", body)

    async def snooze_task(self, task: AgentTask, after: float | timedelta) -> str:
        """Put a task off. The attempt does not count.

        Args:
            task: the claimed task.
            after: delay before the next attempt, in seconds or as a `timedelta`, at most 366 days.

        Returns:
            `retry_wait`; `cancelled` if the task was cancelled meanwhile.
        """
        seconds = asked_seconds(after)
        if seconds is None:
            raise InvalidInputError("bad_snooze", f"after is seconds or a timedelta, not {after!r}")
        return await self._end(task, "snooze", {"after_seconds": seconds})

    async def suspend_task(self, task: AgentTask, suspension: Suspension) -> str:
        """Let a task wait, as its steps ask for. Steps do it: call `task.sleep` and so on.

        Returns:
            `waiting`; `cancelled` if the task was cancelled meanwhile.
        """
        return await self._end(task, "suspend", suspension_body(suspension))

    async def release_task(self, task: AgentTask, reason: str = "released") -> str:
        """Give a task back. The attempt does not count.

        Returns:
            `queued`; `cancelled` if the task was cancelled meanwhile.
        """
        return await self._end(task, "release", {"reason": clean(reason)[:1000] or "released"})

    async def _end(self, task: AgentTask, how: str, body: dict[str, Any]) -> str:
        answer = await self._http.post(f"/queue/{how}", {"token": task.token, **body}, wants=("status",))
        status: str = answer["status"]
        task.status = status
        self.forget(task)
        return status
