"""Deliveries in the database: made from the log, taken, ended, put off, and sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from grns.errors import ConflictError
from grns.model.url_policy import UrlPolicy
from grns.postgres.database import Database
from grns.webhooks import deliveries as delivery
from grns.webhooks import service as store
from grns.webhooks.deliveries import (
    ClaimedDelivery,
    DeliveryOutcome,
    WebhookDelivery,
    list_deliveries,
    read_delivery,
    resend_delivery,
)
from grns.webhooks.service import Webhook
from tests.support.harness import submit, submit_many
from tests.support.operations import payload_of, said
from tests.support.store import ACTOR, cancel, fetch, stranger
from tests.support.webhooks import deliveries, fall_due, made, settle

WHERE: dict[str, Any] = {"workspace": "default"}
WHO: dict[str, Any] = {**WHERE, "actor": ACTOR}
DAY = 86_400.0
FAILED = DeliveryOutcome("pending", 5.0, 500, "http_500", 12)


async def make(database: Database, limit: int = 1000) -> int:
    """Look through the log as far as it is settled, and return how many deliveries came of it."""
    found = await delivery.create_deliveries(database, limit)
    assert found is not None
    return found.deliveries


async def take(
    database: Database,
    *,
    is_failing: bool = False,
    of_one: int = 10,
    limit: int = 100,
    busy: Mapping[str, int] | None = None,
) -> list[ClaimedDelivery]:
    """Take what is due."""
    return await delivery.claim_deliveries(
        database,
        uuid4(),
        is_failing=is_failing,
        of_one=of_one,
        limit=limit,
        lease_seconds=60.0,
        busy=busy or {},
    )


async def end(
    database: Database, claimed: ClaimedDelivery, ending: DeliveryOutcome, days: float = 5.0
) -> bool | None:
    """Note what came of an attempt."""
    return await delivery.finish_delivery(database, claimed, ending, failing_seconds=days * DAY)


async def one_taken(database: Database) -> tuple[str, ClaimedDelivery]:
    """Let there be a webhook, and take a delivery of it."""
    _, webhook_id = await made(database)
    await store.ping_webhook(database, webhook_id, **WHO)
    (taken,) = await take(database)
    return webhook_id, taken


async def row_of(database: Database, claimed: ClaimedDelivery) -> WebhookDelivery:
    """Return a delivery."""
    return await read_delivery(database, claimed.webhook_id, claimed.seq, **WHERE)


async def webhook_of(database: Database, claimed: ClaimedDelivery) -> Webhook:
    """Return the webhook of a delivery."""
    return await store.read_webhook(database, claimed.webhook_id, **WHERE)


# ---------------------------------------------------------------- made from the log


async def test_each_event_that_is_wanted_becomes_one_delivery(shared: Database) -> None:
    _, tasks = await made(shared, "https://a.example/", "evt.task.*")
    _, ends = await made(shared, "https://b.example/", "evt.task.cancelled", "dlq.task.*")
    _, theirs = await made(shared, "https://c.example/", "evt.task.*", workspace="acme")
    first, second = [await submit(shared) for _ in range(2)]
    await cancel(shared, first.id)
    await submit(shared, workspace="acme")
    await settle(shared)
    assert await make(shared) == 5
    kinds = [(row["kind"], row["task_id"]) for row in await deliveries(shared, tasks)]
    queued, cancelled = "evt.task.queued", "evt.task.cancelled"
    assert kinds == [(queued, first.id), (queued, second.id), (cancelled, first.id)]
    assert [row["kind"] for row in await deliveries(shared, ends)] == [cancelled]
    assert [row["workspace"] for row in await deliveries(shared, theirs)] == ["acme"]
    logged = {row["seq"]: row["message_id"] for row in await fetch(shared, "select * from grns.events")}
    for row in await deliveries(shared, tasks):
        assert (row["message_id"], row["state"], row["attempts"]) == (logged[row["seq"]], "pending", 0)
    assert await make(shared) == 0


async def test_it_goes_no_farther_than_the_log_is_settled(shared: Database) -> None:
    """What a stranger's transaction has not committed yet is waited for, and comes in its turn."""
    _, webhook_id = await made(shared)
    await settle(shared)
    async with stranger(shared) as connection:
        await connection.execute("select grns.submit_task('late', '{}')")
        early = await submit(shared)
        assert await make(shared) == 0
        assert await deliveries(shared, webhook_id) == []
        await connection.execute("commit")
    await settle(shared)
    assert await make(shared) == 2
    assert [row["task_id"] for row in await deliveries(shared, webhook_id)][1] == early.id


async def test_the_counter_settles_the_log_as_well(shared: Database) -> None:
    _, webhook_id = await made(shared)
    await submit(shared)
    low = await settle(shared)
    await fetch(shared, "update grns.relay_cursor set low = 0")
    await fetch(shared, "update grns.count_cursor set low = $1", low)
    assert await make(shared) == 1
    assert len(await deliveries(shared, webhook_id)) == 1


async def test_what_was_before_a_webhook_is_not_told(shared: Database) -> None:
    await submit_many(shared, 3)
    _, webhook_id = await made(shared, "https://a.example/", "evt.task.*", "evt.webhook.*")
    await submit(shared)
    await settle(shared)
    assert await make(shared) == 2
    kinds = [row["kind"] for row in await deliveries(shared, webhook_id)]
    assert kinds == ["evt.webhook.created", "evt.task.queued"]


async def test_a_log_that_nobody_is_told_of_is_passed_over(shared: Database) -> None:
    """However long it is: in one step, and also where the first webhook comes after it."""
    await submit_many(shared, 20)
    await settle(shared)
    found = await delivery.create_deliveries(shared, 5)
    assert found is not None
    assert (found.low, found.deliveries) == (found.settled, 0)
    await fetch(shared, "update grns.webhook_cursor set low = 0")
    _, webhook_id = await made(shared)
    await submit(shared)
    await settle(shared)
    assert await make(shared, 5) == 1
    assert len(await deliveries(shared, webhook_id)) == 1


async def test_a_long_log_is_looked_through_in_steps(shared: Database) -> None:
    _, webhook_id = await made(shared)
    ids = await submit_many(shared, 10)
    end_of_log = await settle(shared)
    steps = []
    while True:
        found = await delivery.create_deliveries(shared, 4)
        assert found is not None
        steps.append(found.deliveries)
        if found.low == found.settled:
            break
        assert found.age_seconds < 60
    assert found.low == end_of_log
    assert (sum(steps), max(steps)) == (10, 4)
    assert {row["task_id"] for row in await deliveries(shared, webhook_id)} == set(ids)


async def test_a_cursor_that_was_set_back_makes_nothing_twice(shared: Database) -> None:
    _, webhook_id = await made(shared)
    await submit(shared)
    await settle(shared)
    assert await make(shared) == 1
    (taken,) = await take(shared)
    await end(shared, taken, DeliveryOutcome("delivered", status_code=200))
    await fetch(shared, "update grns.webhook_cursor set low = 0")
    assert await make(shared) == 0
    assert [row["state"] for row in await deliveries(shared, webhook_id)] == ["delivered"]


async def test_two_who_look_make_each_delivery_once(shared: Database) -> None:
    _, webhook_id = await made(shared)
    ids = await submit_many(shared, 30)
    await settle(shared)
    while sum(found.deliveries for found in await asyncio.gather(*(_made(shared) for _ in range(4)))):
        pass
    told = [row["task_id"] for row in await deliveries(shared, webhook_id)]
    assert (len(told), set(told)) == (30, set(ids))
    async with stranger(shared) as connection:
        await connection.execute("select from grns.webhook_cursor for update")
        assert await delivery.create_deliveries(shared, 5) is None, "whoever is at it is not waited for"


async def _made(database: Database) -> delivery.CreatedDeliveries:
    return await delivery.create_deliveries(database, 5) or delivery.CreatedDeliveries(0, 0, 0, 0.0)


async def test_a_disabled_one_is_told_of_nothing_and_afterwards_of_what_follows(shared: Database) -> None:
    _, webhook_id = await made(shared)
    await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=False, **WHO)
    await submit(shared)
    await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=True, **WHO)
    after = await submit(shared)
    await settle(shared)
    assert await make(shared) == 1
    assert [row["task_id"] for row in await deliveries(shared, webhook_id)] == [after.id]


# ---------------------------------------------------------------- taken


async def test_a_delivery_is_taken_with_all_that_it_takes(shared: Database) -> None:
    secret, webhook_id = await made(shared, "https://a.example/hook")
    new, _ = await store.rotate_secret(shared, webhook_id, **WHO)
    task = await submit(shared)
    await settle(shared)
    await make(shared)
    (taken,) = await take(shared)
    (event,) = await fetch(shared, "select * from grns.events where kind = 'evt.task.queued'")
    assert (taken.webhook_id, taken.seq, taken.attempt) == (webhook_id, event["seq"], 1)
    assert (taken.url, taken.secrets) == ("https://a.example/hook", [new.value, secret.value])
    assert (taken.kind, taken.message_id) == ("evt.task.queued", str(event["message_id"]))
    assert taken.event is not None
    assert (taken.event.payload, taken.event.trace_id) == (event["payload"], task.trace_id)
    assert (taken.event.version, taken.event.emitted_at) == (1, event["created_at"])
    assert "a.example" not in repr(taken)
    assert repr(secret.value) not in repr(taken)
    assert await take(shared) == []
    row = await row_of(shared, taken)
    assert (row.state, row.attempts, row.due_at) == ("pending", 1, None)


async def test_an_old_secret_signs_no_longer_than_it_is_good(shared: Database) -> None:
    _, webhook_id = await made(shared)
    new, _ = await store.rotate_secret(shared, webhook_id, overlap_seconds=60.0, **WHO)
    await fetch(
        shared,
        "update grns.webhook_secrets set expires_at = now() - interval '1 s' where expires_at is not null",
    )
    await store.ping_webhook(shared, webhook_id, **WHO)
    (taken,) = await take(shared)
    assert taken.secrets == [new.value]


async def test_a_lease_that_is_over_lets_another_one_take_it(shared: Database) -> None:
    webhook_id, lost = await one_taken(shared)
    await fall_due(shared, webhook_id)
    (taken,) = await take(shared)
    assert (taken.seq, taken.attempt) == (lost.seq, 2)
    assert await end(shared, lost, DeliveryOutcome("delivered", status_code=200)) is None, (
        "it is not his any more"
    )
    assert (await row_of(shared, taken)).state == "pending"
    assert await end(shared, taken, DeliveryOutcome("delivered", status_code=200)) is False
    assert await end(shared, taken, FAILED) is None, "it has ended"
    assert (await row_of(shared, taken)).state == "delivered"


async def test_what_somebody_else_has_locked_is_left_to_them(shared: Database) -> None:
    _, webhook_id = await made(shared)
    first, second = [await store.ping_webhook(shared, webhook_id, **WHO) for _ in range(2)]
    async with stranger(shared) as connection:
        await connection.execute(
            "select from grns.webhook_deliveries where seq = $1 for update".replace("$1", str(first))
        )
        assert [one.seq for one in await take(shared)] == [second]


async def test_two_who_take_share_and_nothing_is_taken_twice(shared: Database) -> None:
    webhooks = [(await made(shared))[1] for _ in range(3)]
    for webhook_id in webhooks:
        for _ in range(8):
            await store.ping_webhook(shared, webhook_id, **WHO)
    taken = await asyncio.gather(*(take(shared, of_one=3, limit=6) for _ in range(8)))
    while more := await take(shared):
        taken.append(more)
    places = [(one.webhook_id, one.seq) for batch in taken for one in batch]
    assert (len(places), len(set(places))) == (24, 24)


async def test_nobody_gets_more_than_their_share(shared: Database) -> None:
    webhooks = [(await made(shared))[1] for _ in range(3)]
    for webhook_id in webhooks:
        for _ in range(5):
            await store.ping_webhook(shared, webhook_id, **WHO)
    taken = await take(shared, of_one=3, busy={webhooks[0]: 2, webhooks[1]: 3})
    counts = {webhook_id: sum(one.webhook_id == webhook_id for one in taken) for webhook_id in webhooks}
    assert counts == {webhooks[0]: 1, webhooks[1]: 0, webhooks[2]: 3}
    assert len(await take(shared, of_one=10, limit=4)) == 4


async def test_those_that_fail_are_taken_for_themselves(shared: Database) -> None:
    webhook_id, taken = await one_taken(shared)
    await end(shared, taken, FAILED)
    await fall_due(shared, webhook_id)
    assert await take(shared) == []
    (again,) = await take(shared, is_failing=True)
    await end(shared, again, DeliveryOutcome("delivered", status_code=200))
    await store.ping_webhook(shared, webhook_id, **WHO)
    assert await take(shared, is_failing=True) == []
    assert len(await take(shared)) == 1


async def test_of_one_that_is_disabled_nothing_is_taken(shared: Database) -> None:
    _, webhook_id = await made(shared)
    await store.ping_webhook(shared, webhook_id, **WHO)
    for is_enabled, count in ((False, 0), (True, 1)):
        await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=is_enabled, **WHO)
        assert len(await take(shared)) == count


async def test_an_event_that_the_log_has_lost_is_taken_without_it(shared: Database) -> None:
    _, webhook_id = await made(shared)
    await store.ping_webhook(shared, webhook_id, **WHO)
    await fetch(shared, "delete from grns.events")
    (taken,) = await take(shared)
    assert taken.event is None


# ---------------------------------------------------------------- ended


async def test_an_attempt_that_failed_is_put_off(shared: Database) -> None:
    _, taken = await one_taken(shared)
    assert await end(shared, taken, FAILED) is False
    row = await row_of(shared, taken)
    assert (row.state, row.status_code, row.error, row.duration_ms) == (
        "pending", 500, "http_500", 12,
    )  # fmt: skip
    assert row.ended_at is None
    assert row.due_at is not None
    assert row.attempted_at is not None
    assert 3.0 < (row.due_at - row.attempted_at).total_seconds() < 10.0
    assert (await webhook_of(shared, taken)).failing_since is not None


async def test_the_last_attempt_ends_it(shared: Database) -> None:
    _, taken = await one_taken(shared)
    assert await end(shared, taken, DeliveryOutcome("failed", error="timeout", duration_ms=15_000)) is False
    row = await row_of(shared, taken)
    assert (row.state, row.error, row.due_at) == ("failed", "timeout", None)
    assert row.ended_at is not None
    assert (await webhook_of(shared, taken)).is_enabled is True


async def test_what_went_well_ends_it_and_the_failing(shared: Database) -> None:
    webhook_id, taken = await one_taken(shared)
    await end(shared, taken, FAILED)
    since = (await webhook_of(shared, taken)).failing_since
    await fall_due(shared, webhook_id)
    (taken,) = await take(shared, is_failing=True)
    await end(shared, taken, FAILED)
    assert (await webhook_of(shared, taken)).failing_since == since, "it fails since then, not since now"
    await fall_due(shared, webhook_id)
    (taken,) = await take(shared, is_failing=True)
    assert await end(shared, taken, DeliveryOutcome("delivered", status_code=204)) is False
    webhook = await webhook_of(shared, taken)
    assert (webhook.failing_since, webhook.version) == (None, 1)
    assert webhook.last_delivered_at is not None


async def test_that_it_goes_well_is_written_down_once_a_minute(shared: Database) -> None:
    webhook_id, taken = await one_taken(shared)
    await end(shared, taken, DeliveryOutcome("delivered", status_code=200))
    first = (await webhook_of(shared, taken)).last_delivered_at
    assert first is not None
    for seconds, is_later in ((30, False), (90, True)):
        await fetch(
            shared,
            f"update grns.webhooks set last_delivered_at = $1::timestamptz - interval '{seconds} s'",
            first,
        )
        await store.ping_webhook(shared, webhook_id, **WHO)
        (taken,) = await take(shared)
        await end(shared, taken, DeliveryOutcome("delivered", status_code=200))
        last = (await webhook_of(shared, taken)).last_delivered_at
        assert last is not None
        assert (last >= first) is is_later


@pytest.mark.parametrize(
    ("failing_days", "ending", "reason"),
    [
        (4.9, FAILED, None),
        (5.1, FAILED, "failing"),
        (5.1, DeliveryOutcome("failed", error="timeout"), "failing"),
        (5.1, DeliveryOutcome("delivered", status_code=200), None),
        (5.1, DeliveryOutcome("failed", error="event_gone", counts_for_webhook=False), None),
        (0.0, DeliveryOutcome("failed", status_code=410, error="http_410", is_gone=True), "gone"),
    ],
)
async def test_who_fails_for_long_is_disabled(
    shared: Database, failing_days: float, ending: DeliveryOutcome, reason: str | None
) -> None:
    _, taken = await one_taken(shared)
    await fetch(
        shared,
        "update grns.webhooks set failing_since = now() - $1::float8 * interval '1 day' where $1::float8 > 0",
        failing_days,
    )
    assert await end(shared, taken, ending) is (reason is not None)
    webhook = await webhook_of(shared, taken)
    assert (webhook.is_enabled, webhook.disabled_reason) == (reason is None, reason)
    events = await said(shared, "evt.webhook.changed")
    assert len(events) == (reason is not None)
    for event in events:
        told = payload_of(event)
        assert (told["actor"], told["reason"], told["is_enabled"]) == (None, reason, False)
        assert (event["actor"], webhook.changed_by, webhook.version) == (None, None, 2)


async def test_what_it_was_disabled_for_is_told_once(shared: Database) -> None:
    _, webhook_id = await made(shared)
    for _ in range(3):
        await store.ping_webhook(shared, webhook_id, **WHO)
    taken = await take(shared)
    gone = DeliveryOutcome("failed", status_code=410, error="http_410", is_gone=True)
    assert [await end(shared, one, gone) for one in taken] == [True, False, False]
    assert len(await said(shared, "evt.webhook.changed")) == 1


async def test_one_for_which_too_much_waits_is_disabled(shared: Database) -> None:
    _, flooded = await made(shared)
    _, other = await made(shared)
    for _ in range(4):
        await store.ping_webhook(shared, flooded, **WHO)
    for _ in range(3):
        await store.ping_webhook(shared, other, **WHO)
    assert await delivery.disable_flooded(shared, 3) == [flooded]
    assert await delivery.disable_flooded(shared, 3) == []
    webhook = await store.read_webhook(shared, flooded, **WHERE)
    assert (webhook.is_enabled, webhook.disabled_reason) == (False, "backlog")
    (event,) = await said(shared, "evt.webhook.changed")
    assert payload_of(event)["reason"] == "backlog"


# ---------------------------------------------------------------- for people


async def test_what_was_sent_is_sent_again_with_a_fresh_budget(shared: Database) -> None:
    _, taken = await one_taken(shared)
    for state in ("delivered", "failed"):
        await end(shared, taken, DeliveryOutcome(state, status_code=200, error=None))
        again = await resend_delivery(shared, taken.webhook_id, taken.seq, **WHO)
        assert (again.state, again.ended_at) == ("pending", None)
        before = taken
        (taken,) = await take(shared, is_failing=state == "failed")
        assert (taken.message_id, taken.attempt) == (before.message_id, 1)
    assert (await row_of(shared, taken)).attempts == 3
    assert len(await said(shared, "evt.webhook.resent")) == 2


async def test_what_waits_is_brought_forward_and_what_is_under_way_is_not(shared: Database) -> None:
    webhook_id, taken = await one_taken(shared)
    with pytest.raises(ConflictError, match="attempt in progress"):
        await resend_delivery(shared, webhook_id, taken.seq, **WHO)
    await end(shared, taken, DeliveryOutcome("pending", 3600.0, 500, "http_500"))
    assert await take(shared, is_failing=True) == []
    await resend_delivery(shared, webhook_id, taken.seq, **WHO)
    assert [one.attempt for one in await take(shared, is_failing=True)] == [1]
    await fetch(shared, "update grns.webhook_deliveries set claim_id = null")
    await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=False, **WHO)
    with pytest.raises(ConflictError, match="disabled"):
        await resend_delivery(shared, webhook_id, taken.seq, **WHO)
    assert len(await said(shared, "evt.webhook.resent")) == 1


async def test_deliveries_are_listed_by_state_and_page_by_page(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, webhook_id = await made(shared)
    seqs = [await store.ping_webhook(shared, webhook_id, **WHO) for _ in range(7)]
    for one in await take(shared):
        if seqs.index(one.seq) % 2:
            await end(shared, one, DeliveryOutcome("failed", error="timeout"))
    latest = seqs[::-1]

    async def listed(
        limit: int, after: int | None = None, *states: Any
    ) -> tuple[list[int], str | None, bool]:
        page = await list_deliveries(
            shared, webhook_id, limit=limit, after=after, states=list(states) or None, **WHERE
        )
        return [row.seq for row in page.rows], page.next_cursor, page.is_partial

    assert await listed(7) == (latest, None, False)
    assert await listed(3) == (latest[:3], str(latest[2]), False)
    assert await listed(3, latest[2]) == (latest[3:6], str(latest[5]), False)
    failed = [seq for seq in latest if seqs.index(seq) % 2]
    assert await listed(7, None, "failed") == (failed, None, False)
    assert await listed(2, None, "failed") == (failed[:2], str(failed[1]), False)
    assert await listed(7, None, "delivered") == ([], None, False)
    monkeypatch.setattr(delivery, "MOST_LOOKED_AT", 4)
    assert await listed(3, None, "failed") == (latest[1:4:2], str(latest[3]), True)
    assert await listed(3, latest[3], "delivered") == ([], None, False)
