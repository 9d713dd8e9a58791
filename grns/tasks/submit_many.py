"""Submitting thousands: in parts, each a transaction, with an account of every one where a part fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from grns.errors import ConflictError, GrnsError, OutcomeUnknownError, UnavailableError
from grns.tasks.submit import Prepared, Submitted

_PART_TASKS = 500
_PARTS_AT_ONCE = 2

SendPart = Callable[[Sequence[Prepared]], Awaitable[list[Submitted | ConflictError]]]


class Bulk:
    """The parts of one call: two at a time, and no other one once one has failed."""

    def __init__(self, send: SendPart) -> None:
        self._send = send
        self._turns = asyncio.Semaphore(_PARTS_AT_ONCE)
        self._answers: list[Submitted | ConflictError] = []
        self._failure: Exception | None = None

    async def submit(self, prepared: Sequence[Prepared]) -> list[Submitted | ConflictError]:
        """Create all, and return the answers in their order; with one that needs others, all or none.

        Where a part fails, what it met is raised if it is true of all of them that nothing was done,
        and otherwise `OutcomeUnknownError`, whose `answers` say what became of each.
        """
        size = len(prepared) if any(one.submission.needs for one in prepared) else _PART_TASKS
        parts = [prepared[start : start + size] for start in range(0, len(prepared), size or 1)]
        fates = await asyncio.gather(*(self._submit_part(part) for part in parts))
        if self._failure is not None:
            raise _account(self._failure, [fate for part in fates for fate in part])
        return [answer for part in fates for answer in part if isinstance(answer, Submitted | ConflictError)]

    async def _submit_part(self, part: Sequence[Prepared]) -> Sequence[Submitted | GrnsError]:
        """Return what became of each of one part: its answer, or the error that the part has met."""
        async with self._turns:
            if self._failure is not None:
                return [UnavailableError(f"not sent: {self._failure}")] * len(part)
            try:
                return await self._send(part)
            except GrnsError as error:
                self._failure = self._failure or error
                return [error] * len(part)
            except Exception as error:
                self._failure = error  # a bug: it ends the call as itself
                raise


def _account(failure: Exception, fates: Sequence[Submitted | GrnsError]) -> Exception:
    created = sum(isinstance(fate, Submitted) for fate in fates)
    unsure = sum(isinstance(fate, OutcomeUnknownError) for fate in fates)
    if not created and not unsure:
        return failure
    told = OutcomeUnknownError(
        f"{created} of {len(fates)} exist, {unsure} may exist, the others do not: {failure}", answers=fates
    )
    told.__cause__ = failure
    return told
