"""Deliveries of webhooks: as people see them, and as the sender makes, takes and ends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args
from uuid import UUID

from grns.errors import ConflictError, NotFoundError
from grns.postgres.database import Database, Row, Session
from grns.postgres.paging import Page
from grns.webhooks.service import read_webhook

State = Literal["pending", "delivered", "failed"]
STATES: tuple[State, ...] = get_args(State)
# A page of some states looks at so many.
MOST_LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class Made:
    """How far the log has been looked through, up to where it is settled, and what came of it."""

    low: int
    settled: int
    deliveries: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """An event as the log has it."""

    version: int
    trace_id: str
    causation_id: str | None
    emitted_at: datetime
    payload: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that is ours to attempt, with all that takes. The event is None where the log has lost it.

    `attempt` counts from 1 since it was made, or since somebody has had it sent again. `now_seconds` is the
    database's time, since 1970.
    """

    claim_id: UUID
    webhook_id: str
    seq: int
    workspace: str
    message_id: str
    kind: str
    attempt: int
    url: str = field(repr=False)
    secrets: Sequence[bytes] = field(repr=False)
    event: DeliveryEvent | None
    now_seconds: float


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of an attempt: the `state` after it, pending where it is tried again in `delay_seconds`.

    `is_telling` says that it says something of the webhook; `is_unwanted`, that it wants nothing more.
    """

    state: State
    delay_seconds: float | None = None
    status_code: int | None = None
    error: str | None = None
    duration_ms: int = 0
    is_telling: bool = True
    is_unwanted: bool = False


# ---------------------------------------------------------------- for people


async def list_deliveries(
    database: Database | Session,
    webhook_id: str,
    *,
    workspace: str,
    states: Sequence[State] | None = None,
    limit: int,
    after: int | None = None,
) -> Page:
    """Return what a webhook was told of, the latest first; `NotFoundError` where there is no such webhook.

    A row has `seq` (the event's number in the log, and the delivery's), `webhook_id`, `message_id`, `kind`,
    `task_id`, `created_at`, `state`, `attempts`, `due_at` (null while an attempt is under way), and of the
    latest attempt `attempted_at`, `duration_ms`, `status_code` and `error`; `ended_at`.
    """
    await read_webhook(database, webhook_id, workspace=workspace)
    looking = limit + 1 if states is None else MOST_LOOKED_AT
    rows = await database.run(
        "list_deliveries", workspace, webhook_id, after, list(states or STATES), looking, limit + 1
    )
    found = [_shown(row) for row in rows if row["seq"] is not None]
    if len(found) > limit:
        return Page(found[:limit], str(found[limit - 1]["seq"]))
    if rows[0]["looked_at"] < looking:
        return Page(found, None)
    return Page(found, str(rows[0]["last_seq"]), is_partial=True)


async def read_delivery(
    database: Database | Session, webhook_id: str, seq: int, *, workspace: str
) -> dict[str, Any]:
    """Return one delivery: a row of `list_deliveries`; `NotFoundError` where there is none."""
    rows = await database.run("read_delivery", workspace, webhook_id, seq)
    if not rows:
        raise _missing(webhook_id, seq)
    return _shown(rows[0])


async def resend_delivery(
    database: Database | Session, webhook_id: str, seq: int, *, workspace: str, actor: str
) -> dict[str, Any]:
    """Have an event sent to a webhook once more, whatever came of it before; returns the delivery.

    Raises `NotFoundError`, and `ConflictError` where the webhook is disabled or an attempt is under way.
    """
    rows = await database.run("resend_delivery", workspace, webhook_id, seq, actor)
    if not rows:
        raise _missing(webhook_id, seq)
    if not rows[0]["is_enabled"]:
        raise ConflictError(f"webhook {webhook_id} is disabled: enable it first")
    if not rows[0]["is_again"]:
        raise ConflictError(f"delivery {seq} of webhook {webhook_id} is under way")
    return await read_delivery(database, webhook_id, seq, workspace=workspace)


# ---------------------------------------------------------------- for the sender


async def make(database: Database, limit: int) -> Made | None:
    """Look through the next numbers of the log; None, and nothing done, where another sender is at it."""
    rows = await database.run("make_deliveries", limit)
    if not rows:
        return None
    row = rows[0]
    return Made(row["low"], row["settled"], row["deliveries"], max(0.0, row["age_seconds"] or 0.0))


async def claim(
    database: Database,
    claim_id: UUID,
    *,
    is_failing: bool,
    of_one: int,
    limit: int,
    lease_seconds: float,
    busy: Mapping[str, int],
) -> list[Claimed]:
    """Take deliveries that are due, of webhooks that fail or of the others; `claim_id` is a new one.

    No webhook gets more than `of_one` at a time; `busy` says how many each has already. What is not ended
    within its lease is due again.
    """
    rows = await database.run(
        "claim_deliveries", claim_id, is_failing, of_one, limit, lease_seconds, list(busy),
        list(busy.values()),
    )  # fmt: skip
    return [_claimed(claim_id, row) for row in rows]


async def finish(
    database: Database, claimed: Claimed, ending: Ending, *, failing_seconds: float
) -> bool | None:
    """Note what came of an attempt; True where its webhook was disabled for it.

    None, and nothing done, where somebody else has taken the delivery meanwhile, or it is there no more. A
    webhook is disabled that has failed for `failing_seconds`, or wants nothing more.
    """
    rows = await database.run(
        "finish_delivery", claimed.webhook_id, claimed.seq, claimed.claim_id, ending.state,
        ending.delay_seconds, ending.status_code, ending.error, ending.duration_ms, ending.is_telling,
        "gone" if ending.is_unwanted else None, failing_seconds,
    )  # fmt: skip
    return bool(rows[0]["is_disabled"]) if rows else None


async def disable_flooded(database: Database, most_pending: int) -> list[str]:
    """Disable webhooks for which more deliveries wait than may; returns their ids."""
    return [row["id"] for row in await database.run("disable_webhooks", most_pending)]


def _claimed(claim_id: UUID, row: Row) -> Claimed:
    event = None
    if row["payload"] is not None:
        event = DeliveryEvent(
            row["version"], row["trace_id"], row["causation_id"], row["emitted_at"], row["payload"]
        )
    return Claimed(
        claim_id, row["webhook_id"], row["seq"], row["workspace"], row["message_id"], row["kind"],
        row["attempt"], row["url"], row["secrets"], event, row["now_seconds"],
    )  # fmt: skip


def _shown(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("looked_at", "last_seq")}


def _missing(webhook_id: str, seq: int) -> NotFoundError:
    return NotFoundError(f"there is no delivery {seq} of webhook {ascii(webhook_id)[1:-1][:100]}")
