"""Claiming: a guarded statement that gives a task to one worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Protocol
from uuid import UUID

from grns.errors import OutcomeUnknownError, UnavailableError
from grns.model.outcome import Claim, Unclaimed
from grns.model.task import random_uuid
from grns.postgres.batch import Batch
from grns.postgres.database import Database, Row, run

_PAUSE_SECONDS = 0.1
# What a claim is made of, in the order of its fields; `expires_at` and `workspace` are ours.
_FIELDS: Callable[[Row], tuple[Any, ...]] = itemgetter(
    *(field.name for field in fields(Claim) if field.name not in ("expires_at", "workspace"))
)


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims: one life of a worker, what it serves, and for how long a claim lasts."""

    agent_id: str
    workspace: str
    agent_type: str
    handled: Mapping[str, int | None]
    lease_seconds: float


@dataclass(slots=True)  # made for each task: frozen ones take five times as long to make
class _ClaimRequest:
    task_id: str
    lease_id: UUID
    causation_id: UUID | None
    token: str
    is_given_up: bool = False


class LeaseKeeping(Protocol):
    """Who sees to leases."""

    def expect(self, claim: Claim, token: str) -> None:
        """Keep a lease, and its delivery if it has one, from the moment on in which the claim is answered."""

    def forget(self, lease_id: UUID) -> None:
        """Keep it no more, if it was expected and nobody has held it: nobody will."""


class Claims:
    """Claims tasks for one worker, one await at a time; what waits together is one statement.

    What is claimed together does not begin together: so `keeping` hears of each lease before anything of the
    batch can run, and keep others from their first step.
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
        self._who = claimant
        self._keeping = keeping
        self._types = list(claimant.handled)
        self._maxima = [claimant.handled[name] for name in self._types]
        self._batch: Batch[_ClaimRequest, Claim | Unclaimed] = Batch(self._send, limit=batch_limit)
        self._is_closed = False

    def close(self) -> None:
        """Claim nothing more, however long what was asked for has waited for a connection."""
        self._is_closed = True

    async def claim(
        self, task_id: str, causation_id: UUID | None = None, *, token: str = ""
    ) -> Claim | Unclaimed:
        """Claim one task, or say why it cannot be claimed now; `token` names the delivery that asks."""
        wish = _ClaimRequest(task_id, random_uuid(), causation_id, token)
        try:
            return await self._batch.ask(wish)
        except asyncio.CancelledError:
            wish.is_given_up = True
            self._forget([wish.lease_id])
            raise

    async def claim_next(self, count: int, *, older_than_seconds: float) -> list[Claim]:
        """Claim up to `count` tasks that have been queued for a while, most urgent first."""
        leases = [random_uuid() for _ in range(count)]
        sent_at = time.monotonic()
        try:
            rows = await self._run(
                "claim_next", leases, self._who.agent_id, self._who.workspace, self._who.agent_type,
                self._types, self._maxima, self._who.lease_seconds, older_than_seconds,
            )  # fmt: skip
        except OutcomeUnknownError:
            rows = await self._settle(sent_at, "read_next_claims", leases)
        claims = [self._made(row, sent_at) for row in rows]
        self._expect((claim, "") for claim in claims)
        return claims

    async def _send(self, wishes: Sequence[_ClaimRequest]) -> Sequence[Claim | Unclaimed]:
        sent_at = time.monotonic()
        try:
            rows = await self._claim(wishes)
        except OutcomeUnknownError:
            rows = await self._settle(
                sent_at, "read_claims", [wish.task_id for wish in wishes], [wish.lease_id for wish in wishes]
            )
        claims = {row["lease_id"]: self._made(row, sent_at) for row in rows}
        self._expect(
            (claims[wish.lease_id], wish.token)
            for wish in wishes
            if wish.lease_id in claims and not wish.is_given_up
        )
        if len(claims) == len(wishes):
            return [claims[wish.lease_id] for wish in wishes]
        if self._is_closed and not claims:
            return [Unclaimed(wish.task_id, "stopping") for wish in wishes]
        refused = [wish.task_id for wish in wishes if wish.lease_id not in claims]
        reasons: dict[str, Unclaimed] = {}
        try:
            with suppress(UnavailableError):  # what was claimed must not be lost to a missing explanation
                reasons = await self._explain(refused)
        except BaseException:
            self._forget(claims)
            raise
        return [
            claims.get(wish.lease_id) or reasons.get(wish.task_id) or Unclaimed(wish.task_id, "locked")
            for wish in wishes
        ]

    def _expect(self, claims: Iterable[tuple[Claim, str]]) -> None:
        if self._keeping is not None:
            for claim, token in claims:
                self._keeping.expect(claim, token)

    def _forget(self, lease_ids: Iterable[UUID]) -> None:
        if self._keeping is not None:
            for lease_id in lease_ids:
                self._keeping.forget(lease_id)

    async def _claim(self, wishes: Sequence[_ClaimRequest]) -> Sequence[Row]:
        return await self._run(
            "claim", [wish.task_id for wish in wishes], [wish.lease_id for wish in wishes],
            [wish.causation_id for wish in wishes], self._who.agent_id, self._who.workspace,
            self._who.agent_type, self._types, self._maxima, self._who.lease_seconds,
        )  # fmt: skip

    async def _run(self, name: str, *arguments: object) -> Sequence[Row]:
        """Run a statement that claims, unless the end has come while it waited for a connection."""
        async with self._database.connection() as connection:
            return () if self._is_closed else await run(connection, name, *arguments)

    async def _settle(self, sent_at: float, read: str, *arguments: object) -> Sequence[Row]:
        """Find out what a claim without an answer has claimed, while that is worth something."""
        while True:
            try:
                rows = await self._database.run(read, *arguments)
            except UnavailableError:
                if time.monotonic() - sent_at > self._who.lease_seconds / 2:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                # Nothing claimed may also mean that the statement is still under way.
                if rows:
                    return rows
                raise UnavailableError("the claim got no answer and claimed nothing")

    def _made(self, row: Row, sent_at: float) -> Claim:
        return Claim(*(*_FIELDS(row), sent_at + self._who.lease_seconds, self._who.workspace))

    async def _explain(self, ids: list[str]) -> dict[str, Unclaimed]:
        rows = await self._database.run(
            "explain_unclaimed", ids, self._who.workspace, self._who.agent_type, self._types
        )
        return {row["id"]: Unclaimed(row["id"], row["reason"], row["task_type"]) for row in rows}
