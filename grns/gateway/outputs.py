"""What HTTP workers stream: sent on for as long as their attempt owns its task."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from grns.errors import LeaseLostError
from grns.gateway.shared_writes import OpenDatabase
from grns.model import output
from grns.model.claim_token import ClaimToken
from grns.model.output import Chunk
from grns.nats import JetStream
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import OutputDropped

_FRESH_SECONDS = 2.0
_MOST_KNOWN = 10_000


class HttpOutputs:
    """Sends chunks of attempts. Whether an attempt still owns its task is asked every two seconds."""

    def __init__(self, transport: JetStream, *, emit: Emit) -> None:
        self._transport = transport
        self._emit = emit
        self._owned: OrderedDict[UUID, float] = OrderedDict()

    async def send(
        self,
        open_database: OpenDatabase,
        token: ClaimToken,
        first: int,
        chunks: Sequence[tuple[str, Any]],
        *,
        mark: str | None,
    ) -> int:
        """Send chunks, as kinds and data, and a mark; return how many were sent. Raises LeaseLostError."""
        await self._check(open_database, token)
        marks = [] if mark is None else [(mark, None)]
        subject, sent = output.subject_of(token.task_id, token.workspace), 0
        for number, (kind, data) in enumerate([*chunks, *marks], start=first):
            sent += self._transport.send(subject, output.encode(Chunk(token.attempt, number, kind, data)))
        if (lost := len(chunks) + len(marks) - sent) > 0:
            self._emit(OutputDropped(token.task_id, token.attempt, token.trace_id, lost))
        return min(sent, len(chunks))

    async def _check(self, open_database: OpenDatabase, token: ClaimToken) -> None:
        asked_at = time.monotonic()
        if asked_at - self._owned.get(token.lease_id, float("-inf")) < _FRESH_SECONDS:
            return
        async with open_database() as database:
            (row,) = await database.run(
                "owns_task", token.task_id, token.attempt, token.lease_id, token.workspace
            )
        if not row["owns_task"]:
            self._owned.pop(token.lease_id, None)
            raise LeaseLostError(
                f"attempt {token.attempt} of task {token.task_id} has ended, or its lease has"
            )
        self._owned[token.lease_id] = asked_at
        self._owned.move_to_end(token.lease_id)
        if len(self._owned) > _MOST_KNOWN:
            self._owned.popitem(last=False)
