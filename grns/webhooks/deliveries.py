"""Deliveries of webhooks: listed and resent by users; created, claimed and finished by the sender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from grns.errors import ConflictError, NotFoundError
from grns.postgres.database import Database, Row, Session, build
from grns.postgres.paging import Page
from grns.webhooks.service import read_webhook

State = Literal["pending", "delivered", "failed"]
STATES: tuple[State, ...] = get_args(State)
# Rows that a page filtered by state reads at most.
MOST_LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """A delivery of an event to a webhook. `due_at` is the time of the next attempt, null during one.

    `seq` is the event's number in the log, and the delivery's. `attempted_at`, `duration_ms`, `status_code`
    and `error` are those of the latest attempt.
    """

    seq: int
    webhook_id: str
    message_id: UUID
    kind: str
    task_id: str | None
    created_at: datetime
    state: State
    attempts: int
    due_at: datetime | None
    attempted_at: datetime | None
    duration_ms: int | None
    status_code: int | None
    error: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class CreatedDeliveries:
    """The number of new deliveries, and how far the log was read: up to `low`, of `settled` readable rows."""

    low: int
    settled: int
    deliveries: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """An event of the log."""

    version: int
    trace_id: str
    causation_id: str | None
    emitted_at: datetime
    payload: str
    was: str | None


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A delivery that this sender may attempt. The event is None if the log no longer has it.

    `attempt` counts from 1, and again from 1 after a resend. `now_seconds` is the database's Unix time.
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
class DeliveryOutcome:
    """The result of an attempt: the new `state`, pending if it is tried again in `delay_seconds`.

    `counts_for_webhook` is False if the webhook did not cause it; `is_gone` if it wants no more events.
    """

    state: State
    delay_seconds: float | None = None
    status_code: int | None = None
    error: str | None = None
    duration_ms: int = 0
    counts_for_webhook: bool = True
    is_gone: bool = False


# ---------------------------------------------------------------- for users


async def list_deliveries(
    database: Database | Session,
    webhook_id: str,
    *,
    workspace: str,
    states: Sequence[State] | None = None,
    limit: int,
    after: int | None = None,
) -> Page[WebhookDelivery]:
    """List the deliveries of a webhook, the latest first; raises `NotFoundError` if it does not exist."""
    await read_webhook(database, webhook_id, workspace=workspace)
    max_read = limit + 1 if states is None else MOST_LOOKED_AT
    rows = await database.run(
        "list_deliveries", workspace, webhook_id, after, list(states or STATES), max_read, limit + 1
    )
    shown = [build(WebhookDelivery, row) for row in rows if row["seq"] is not None]
    if len(shown) > limit:
        return Page(shown[:limit], str(shown[limit - 1].seq))
    if rows[0]["looked_at"] < max_read:
        return Page(shown, None)
    return Page(shown, str(rows[0]["last_seq"]), is_partial=True)


async def read_delivery(
    database: Database | Session, webhook_id: str, seq: int, *, workspace: str
) -> WebhookDelivery:
    """Return one delivery; raises `NotFoundError` if it does not exist."""
    found = await database.fetch(WebhookDelivery, "read_delivery", workspace, webhook_id, seq)
    if not found:
        raise _missing(webhook_id, seq)
    return found[0]


async def resend_delivery(
    database: Database | Session, webhook_id: str, seq: int, *, workspace: str, actor: str
) -> WebhookDelivery:
    """Send an event to a webhook again, whatever the state of its delivery, and return the delivery.

    Raises `NotFoundError`, and `ConflictError` if the webhook is disabled or during an attempt.
    """
    rows = await database.run("resend_delivery", workspace, webhook_id, seq, actor)
    if not rows:
        raise _missing(webhook_id, seq)
    if not rows[0]["is_enabled"]:
        raise ConflictError(f"webhook {webhook_id} is disabled: enable it first")
    if not rows[0]["is_again"]:
        raise ConflictError(
            f"delivery {seq} of webhook {webhook_id} has an attempt in progress: try again later"
        )
    return await read_delivery(database, webhook_id, seq, workspace=workspace)


# ---------------------------------------------------------------- for the sender


async def create_deliveries(database: Database, limit: int) -> CreatedDeliveries | None:
    """Create deliveries for the next rows of the log; return None while another sender does so."""
    rows = await database.run("make_deliveries", limit)
    if not rows:
        return None
    row = rows[0]
    return CreatedDeliveries(
        row["low"], row["settled"], row["deliveries"], max(0.0, row["age_seconds"] or 0.0)
    )


async def claim_deliveries(
    database: Database,
    claim_id: UUID,
    *,
    is_failing: bool,
    of_one: int,
    limit: int,
    lease_seconds: float,
    busy: Mapping[str, int],
    keys: Sequence[str] = (),
) -> list[ClaimedDelivery]:
    """Claim due deliveries of failing webhooks, or of the others, with a new `claim_id`.

    A webhook has at most `of_one` at a time; `busy` has its current number. A delivery that is not finished
    within its lease is due again. Those of webhooks whose secrets are sealed by none of these
    `keys` are left to senders that have the key.
    """
    rows = await database.run(
        "claim_deliveries", claim_id, is_failing, of_one, limit, lease_seconds, list(busy),
        list(busy.values()), list(keys),
    )  # fmt: skip
    return [_claimed(claim_id, row) for row in rows]


async def finish_delivery(
    database: Database, claimed: ClaimedDelivery, outcome: DeliveryOutcome, *, failing_seconds: float
) -> bool | None:
    """Persist the outcome of an attempt; return whether it disabled the webhook.

    Returns None, and changes nothing, if another sender has claimed the delivery or it was deleted. A webhook
    is disabled after failing for `failing_seconds`, or if it is gone.
    """
    rows = await database.run(
        "finish_delivery", claimed.webhook_id, claimed.seq, claimed.claim_id, outcome.state,
        outcome.delay_seconds, outcome.status_code, outcome.error, outcome.duration_ms,
        outcome.counts_for_webhook, "gone" if outcome.is_gone else None, failing_seconds,
    )  # fmt: skip
    return bool(rows[0]["is_disabled"]) if rows else None


async def disable_flooded(database: Database, most_pending: int) -> list[str]:
    """Disable webhooks with more than `most_pending` pending deliveries; return their ids."""
    return [row["id"] for row in await database.run("disable_webhooks", most_pending)]


def _claimed(claim_id: UUID, row: Row) -> ClaimedDelivery:
    event = None
    if row["payload"] is not None:
        event = DeliveryEvent(
            row["version"],
            row["trace_id"],
            row["causation_id"],
            row["emitted_at"],
            row["payload"],
            row["was"],
        )
    return ClaimedDelivery(
        claim_id, row["webhook_id"], row["seq"], row["workspace"], row["message_id"], row["kind"],
        row["attempt"], row["url"], row["secrets"], event, row["now_seconds"],
    )  # fmt: skip


def _missing(webhook_id: str, seq: int) -> NotFoundError:
    return NotFoundError(f"no delivery {seq} of webhook {ascii(webhook_id)[1:-1][:100]}")
