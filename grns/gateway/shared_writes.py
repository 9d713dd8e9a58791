"""Renewals and outcomes of agents over HTTP: those that come at the same time share a statement.

Only a few requests of a workspace may ask the database at a time. If each wrote for itself, leases would end
while their renewals wait behind one another wherever Postgres is slow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from grns.errors import ContendedError, LeaseLostError
from grns.model.claim_token import ClaimToken
from grns.model.outcome import Finished
from grns.postgres.batch import Batch
from grns.postgres.database import Database, Session
from grns.worker.finishes import Finish, Finishes
from grns.worker.renewals import HeldLease, RenewResult, renew

# Opens what to write with: the caller decides what that may see.
OpenDatabase = Callable[[], AbstractAsyncContextManager[Database | Session]]
_MOST_SHARED = 100
_MOST_KNOWN = 1000

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer to a renewal: whether the task is to be cancelled or is overdue; the order of its agent."""

    is_cancel_requested: bool
    is_overdue: bool
    order: str | None = None


@dataclass(slots=True)
class _SharedWrite(Generic[Item]):
    """What is to be written, and how its request opens the database. Requests of a workspace see the same."""

    open_database: OpenDatabase
    item: Item


class SharedWrites:
    """Writes renewals and outcomes, many of a workspace at once. The statements check each token."""

    def __init__(self) -> None:
        self._renewals: OrderedDict[Hashable, Batch[_SharedWrite[ClaimToken], tuple[RenewResult, bool]]] = (
            OrderedDict()
        )
        self._finishes: OrderedDict[Hashable, Batch[_SharedWrite[Finish], Finished]] = OrderedDict()

    async def renew(self, open_database: OpenDatabase, token: ClaimToken) -> Renewal:
        """Renew a lease.

        Raises LeaseLostError, or ContendedError where another transaction has the row.
        """
        key, seconds = (token.workspace, token.lease_seconds), token.lease_seconds
        batch = _of(self._renewals, key, lambda: Batch(partial(_renew, seconds), limit=_MOST_SHARED))
        result, is_overdue = await batch.ask(_SharedWrite(open_database, token))
        if result.verdict == "lost":
            raise lost_error(token)
        if result.verdict == "locked":
            raise _locked(token.task_id)
        return Renewal(result.is_cancel_requested, is_overdue)

    async def finish(self, open_database: OpenDatabase, finish: Finish) -> Finished:
        """Write an outcome, or say what was written with its event id before; `lost` if the lease is.

        Raises ContendedError where another transaction has the row.
        """
        batch = _of(self._finishes, finish.claim.workspace, lambda: Batch(_finish, limit=_MOST_SHARED))
        finished = await batch.ask(_SharedWrite(open_database, finish))
        if finished.status == "locked":
            raise _locked(finish.claim.id)
        return finished


Known = TypeVar("Known")


def _of(known: OrderedDict[Hashable, Known], key: Hashable, make: Callable[[], Known]) -> Known:
    """Return the batch of a key. One that is forgotten while it is in use ends what it has begun."""
    batch = known.get(key)
    if batch is None:
        batch = known[key] = make()
        if len(known) > _MOST_KNOWN:
            known.popitem(last=False)
    known.move_to_end(key)
    return batch


async def _renew(
    lease_seconds: float, asked: Sequence[_SharedWrite[ClaimToken]]
) -> Sequence[tuple[RenewResult, bool]]:
    tokens = [one.item for one in asked]
    held = [HeldLease(one.task_id, one.attempt, one.lease_id, one.workspace) for one in tokens]
    async with asked[0].open_database() as database:
        results = await renew(database, held, lease_seconds)
        ids, attempts = [one.task_id for one in tokens], [one.attempt for one in tokens]
        rows = await database.run("read_overdue", ids, attempts, tokens[0].workspace)
    overdue = {row["place"] for row in rows}
    return [(result, place in overdue) for place, result in enumerate(results, 1)]


async def _finish(asked: Sequence[_SharedWrite[Finish]]) -> Sequence[Finished]:
    """Write outcomes. One that is lost may be a repetition of what was written, unless that was looked up."""
    async with asked[0].open_database() as database:
        finishes = Finishes(database, batch_limit=_MOST_SHARED)
        found = list(await finishes.finish_many([one.item for one in asked]))
        for place, (one, finished) in enumerate(zip(asked, found, strict=True)):
            if finished.is_lost and not one.item.is_unsure:
                found[place] = await finishes.read_back(one.item) or finished
    return found


def lost_error(token: ClaimToken) -> LeaseLostError:
    """Return the error of an attempt that is over."""
    return LeaseLostError(
        f"attempt {token.attempt} of task {token.task_id} has ended, or its lease has: it is another's now"
    )


def _locked(task_id: str) -> ContendedError:
    return ContendedError(f"task {task_id} is locked by another transaction")
