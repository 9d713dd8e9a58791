"""Claim tasks with guarded statements that give each task to one worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Protocol
from uuid import UUID

from grns.errors import OutcomeUnknownError, SealedError, UnavailableError
from grns.model.outcome import Claim, Unclaimed
from grns.model.task import random_uuid
from grns.postgres.batch import Batch
from grns.postgres.database import Database, Row, run
from grns.telemetry.task_signals import PayloadClosed
from grns.worker.command import ExecuteCommand

_PAUSE_SECONDS = 0.1
# The columns of a claim in the order of its fields; `expires_at` and `workspace` are set here.
_FIELDS: Callable[[Row], tuple[Any, ...]] = itemgetter(
    *(field.name for field in fields(Claim) if field.name not in ("expires_at", "workspace", "scrubber"))
)


@dataclass(frozen=True, slots=True)
class Claimant:
    """One worker process: its id, pool, task types and lease, and the agent that it is, if it is one.

    With `is_counted`, each claim counts the tasks that the agent has: it may have several such workers.
    """

    agent_id: str
    workspace: str
    agent_type: str
    handled: Mapping[str, int | None]
    lease_seconds: float
    agent: str | None = None
    is_counted: bool = False


@dataclass(slots=True)  # made for each task: frozen ones take five times as long to make
class _ClaimRequest:
    task_id: str
    lease_id: UUID
    causation_id: UUID | None
    is_given_up: bool = False


class LeaseKeeping(Protocol):
    """Renews leases."""

    def expect(self, claim: Claim) -> None:
        """Renew a lease from the answer to its claim on."""

    def forget(self, lease_id: UUID) -> None:
        """Stop renewing a lease that was expected and never held."""


class Claims:
    """Claims tasks for one worker; callers that wait at the same time share one statement.

    The tasks of a batch do not start at the same time. So `keeping` learns of every lease before any task of
    the batch can run and block the loop.
    """

    def __init__(
        self,
        database: Database,
        claimant: Claimant,
        *,
        batch_limit: int,
        keeping: LeaseKeeping | None = None,
    ) -> None:
        self._database = database
        self._claimant = claimant
        self._keeping = keeping
        self._types = list(claimant.handled)
        self._maxima = [claimant.handled[name] for name in self._types]
        self._batch: Batch[_ClaimRequest, Claim | Unclaimed] = Batch(self._send, limit=batch_limit)
        self._turn = asyncio.Lock()
        self._is_closed = False
        # Whether the last claim was refused because the agent has no room, or is told to end.
        self.is_full = False

    def close(self) -> None:
        """Refuse further claims, also those that already wait for a connection."""
        self._is_closed = True

    async def claim(self, task_id: str, causation_id: UUID | None = None) -> Claim | Unclaimed:
        """Claim one task, or return why it cannot be claimed now."""
        request = _ClaimRequest(task_id, random_uuid(), causation_id)
        try:
            return await self._batch.ask(request)
        except asyncio.CancelledError:
            request.is_given_up = True
            self._forget([request.lease_id])
            raise

    async def claim_many(self, commands: Sequence[ExecuteCommand]) -> Sequence[Claim | Unclaimed]:
        """Claim the tasks of commands in one statement; return each claim, or why there is none."""
        requests = [_ClaimRequest(one.task_id, random_uuid(), one.message_id) for one in commands]
        try:
            return await self._send(requests)
        except asyncio.CancelledError:
            self._forget([request.lease_id for request in requests])
            raise

    async def claim_hinted(self, task_ids: Sequence[str]) -> list[Claim]:
        """Claim tasks by their ids in one statement; return the claims. Others are not explained."""
        requests = [_ClaimRequest(task_id, random_uuid(), None) for task_id in task_ids]
        try:
            answers = await self._send(requests, explains=False)
        except asyncio.CancelledError:
            self._forget([request.lease_id for request in requests])
            raise
        return [answer for answer in answers if isinstance(answer, Claim)]

    async def claim_next(self, count: int, *, older_than_seconds: float | None) -> list[Claim]:
        """Claim up to `count` tasks that have been queued for a while, most urgent first.

        A worker of an agent claims those that only some agents may run, too, however new they are; with
        `older_than_seconds` None only those.
        """
        leases = [random_uuid() for _ in range(count)]
        sent_at = time.monotonic()
        try:
            rows, sent_at = await self._run(
                "claim_next", leases, self._claimant.agent_id, self._claimant.workspace,
                self._claimant.agent_type, self._types, self._maxima,
                self._claimant.lease_seconds, older_than_seconds, self._claimant.agent,
            )  # fmt: skip
        except OutcomeUnknownError:
            rows = await self._settle(sent_at, "read_next_claims", leases)
        claims = [self._made(row, sent_at) for row in rows]
        self._expect(claims)
        return claims

    async def _send(
        self, requests: Sequence[_ClaimRequest], *, explains: bool = True
    ) -> Sequence[Claim | Unclaimed]:
        sent_at = time.monotonic()
        try:
            rows, sent_at = await self._claim(requests)
        except OutcomeUnknownError:
            rows = await self._settle(
                sent_at,
                "read_claims",
                [request.task_id for request in requests],
                [request.lease_id for request in requests],
            )
        claims = {row["lease_id"]: self._made(row, sent_at) for row in rows}
        self._expect(
            claims[request.lease_id]
            for request in requests
            if request.lease_id in claims and not request.is_given_up
        )
        if len(claims) == len(requests):
            return [claims[request.lease_id] for request in requests]
        if self._is_closed and not claims:
            return [Unclaimed(request.task_id, "stopping") for request in requests]
        if self.is_full and not claims:
            return [Unclaimed(request.task_id, "agent_full") for request in requests]
        refused = [request.task_id for request in requests if request.lease_id not in claims]
        reasons: dict[str, Unclaimed] = {}
        try:
            with suppress(UnavailableError):  # a missing explanation must not lose the claims
                reasons = await self._explain(refused) if explains else {}
        except BaseException:
            self._forget(claims)
            raise
        return [
            claims.get(request.lease_id)
            or reasons.get(request.task_id)
            or Unclaimed(request.task_id, "locked")
            for request in requests
        ]

    def _expect(self, claims: Iterable[Claim]) -> None:
        if self._keeping is not None:
            for claim in claims:
                self._keeping.expect(claim)

    def _forget(self, lease_ids: Iterable[UUID]) -> None:
        if self._keeping is not None:
            for lease_id in lease_ids:
                self._keeping.forget(lease_id)

    async def _claim(self, requests: Sequence[_ClaimRequest]) -> tuple[Sequence[Row], float]:
        return await self._run(
            "claim", [request.task_id for request in requests], [request.lease_id for request in requests],
            [request.causation_id for request in requests], self._claimant.agent_id, self._claimant.workspace,
            self._claimant.agent_type, self._types, self._maxima, self._claimant.lease_seconds,
        )  # fmt: skip

    async def _run(self, name: str, *arguments: object) -> tuple[Sequence[Row], float]:
        """Run a claiming statement, unless `close` was called meanwhile; return when it was sent, too."""
        if self._claimant.is_counted:
            return await self._run_counted(name, *arguments)
        async with self._database.connection() as connection:
            sent_at = time.monotonic()
            return (() if self._is_closed else await run(connection, name, *arguments)), sent_at

    async def _run_counted(self, name: str, *arguments: object) -> tuple[Sequence[Row], float]:
        """Run it if the agent may have more tasks and goes on; its claims wait for one another."""
        who = self._claimant
        # They wait here, without a connection: outcomes and steps need those of the pool.
        async with self._turn, self._database.transaction() as connection:
            rows = await run(connection, "hold_agent", who.workspace, who.agent, who.agent_id)
            sent_at = time.monotonic()
            self.is_full = rows[0]["room"] is not None and rows[0]["room"] <= 0
            if self._is_closed or self.is_full:
                return (), sent_at
            return await run(connection, name, *arguments), sent_at

    async def _settle(self, sent_at: float, read: str, *arguments: object) -> Sequence[Row]:
        """Return what a claim without an answer has claimed; give up after half the lease."""
        while True:
            try:
                rows = await self._database.run(read, *arguments)
            except UnavailableError:
                if time.monotonic() - sent_at > self._claimant.lease_seconds / 2:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                # If no row is found, the statement may still be running.
                if rows:
                    return rows
                raise UnavailableError("the claim got no answer and claimed nothing")

    def _made(self, row: Row, sent_at: float) -> Claim:
        return Claim(*(*_FIELDS(row), sent_at + self._claimant.lease_seconds, self._claimant.workspace))

    async def _explain(self, ids: list[str]) -> dict[str, Unclaimed]:
        rows = await self._database.run(
            "explain_unclaimed", ids, self._claimant.workspace, self._claimant.agent_type, self._types
        )
        return {row["id"]: Unclaimed(row["id"], row["reason"], row["task_type"]) for row in rows}


def payload_closed(claim: Claim, error: SealedError) -> PayloadClosed:
    """Return the signal that the payload of a claimed task cannot be opened here."""
    return PayloadClosed(claim.id, claim.task_type, claim.attempt, claim.trace_id, error.code, str(error))


async def dispatch(database: Database, task_id: str, causation_id: UUID | None) -> bool:
    """Write a new command for a task to the event log. Return False if the task is not queued."""
    return bool(await database.run("dispatch", [task_id], [causation_id]))


async def explain(database: Database, task_id: str, claimant: Claimant) -> str:
    """Return the reason why a task can be neither claimed nor dispatched now."""
    rows = await database.run(
        "explain_unclaimed", [task_id], claimant.workspace, claimant.agent_type, list(claimant.handled)
    )
    return str(rows[0]["reason"])
