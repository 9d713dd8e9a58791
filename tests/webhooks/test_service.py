"""Webhooks in the database: who is told of what, signed with which secrets, and what the log has of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from grns.access.isolation import as_tenant
from grns.errors import ConflictError, InvalidInputError, NotFoundError, StaleVersionError
from grns.model.url_policy import UrlPolicy
from grns.postgres.database import Database
from grns.webhooks import service as store
from grns.webhooks.deliveries import list_deliveries, read_delivery, resend_delivery
from grns.webhooks.service import Webhook
from grns.webhooks.signature import Secret
from tests.support.operations import payload_of, said
from tests.support.store import ACTOR, deleted, fetch
from tests.support.webhooks import deliveries, made

WHERE: dict[str, Any] = {"workspace": "default"}
WHO: dict[str, Any] = {**WHERE, "actor": ACTOR}
URL = "https://hooks.example.org/services/s3cret"


async def secrets_of(database: Database, webhook_id: str) -> list[tuple[bytes, bool]]:
    """Return the secrets that are good, the latest first, and whether each stays so."""
    rows = await fetch(
        database,
        "select secret, expires_at is null as stays from grns.webhook_secrets"
        " where webhook_id = $1 and (expires_at is null or expires_at > now()) order by id desc",
        webhook_id,
    )
    return [(row["secret"], row["stays"]) for row in rows]


async def test_a_webhook_is_made_shown_and_told_of(shared: Database) -> None:
    secret, row = await store.create_webhook(
        shared,
        url=URL,
        kinds=["evt.task.dead", "evt.task.*"],
        description="pages us",
        guard=UrlPolicy(),
        **WHO,
    )
    assert isinstance(secret, Secret)
    assert row == await store.read_webhook(shared, row.id, **WHERE)
    assert (row.url, row.kinds, row.description) == (
        URL,
        ["evt.task.dead", "evt.task.*"],
        "pages us",
    )
    assert (row.is_enabled, row.version, row.created_by, row.changed_by) == (
        True,
        1,
        ACTOR,
        ACTOR,
    )
    assert row.secret_since is not None
    assert (row.old_secret_until, row.failing_since, row.disabled_reason) == (None, None, None)
    assert await secrets_of(shared, row.id) == [(secret.value, True)]
    (event,) = await said(shared, "evt.webhook.created")
    assert (event["actor"], event["workspace"]) == (ACTOR, "default")
    assert payload_of(event)["kinds"] == row.kinds
    (kept,) = await fetch(shared, "select since_seq, pattern from grns.webhooks")
    assert kept["since_seq"] == event["seq"]


async def test_neither_url_nor_secret_is_in_the_log_or_in_what_is_read(shared: Database) -> None:
    secret, webhook_id = await made(shared, URL)
    new, _ = await store.rotate_secret(shared, webhook_id, **WHO)
    other = URL.replace("s3cret", "0ther")
    await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), url=other, **WHO)
    await store.ping_webhook(shared, webhook_id, **WHO)
    shown = [await store.read_webhook(shared, webhook_id, **WHERE), *(await deliveries(shared, webhook_id))]
    events = [event["payload"] for event in await fetch(shared, "select payload from grns.events")]
    await store.delete_webhook(shared, webhook_id, **WHO)
    left = [dict(row) for row in await fetch(shared, "select * from grns.webhooks")]
    assert await fetch(shared, "select from grns.webhook_secrets") == []
    for one in (secret, new):
        assert one.reveal() not in f"{shown}{events}{left}"
        assert repr(one.value) not in f"{shown}{events}{left}"
    for word in ("s3cret", "0ther"):
        assert word not in f"{events}{left}"


async def test_what_is_refused_is_not_made(shared: Database) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"url": "http://hooks.example.org/"}, "bad_url"),
        ({"url": "https://10.0.0.1/"}, "forbidden_address"),
        ({"kinds": []}, "bad_kind"),
        ({"kinds": ["cmd.task.execute"]}, "bad_kind"),
        ({"description": "\x1b[31m"}, "bad_webhook"),
        ({"description": ""}, "bad_webhook"),
    ]
    for change, code in wrong:
        order = {"url": URL, "kinds": ["evt.task.dead"], **change}
        with pytest.raises(InvalidInputError) as refused:
            await store.create_webhook(shared, guard=UrlPolicy(), **order, **WHO)
        assert refused.value.code == code
    assert await fetch(shared, "select from grns.webhooks") == []
    assert await fetch(shared, "select from grns.events") == []


async def test_a_workspace_has_a_hundred_at_most(shared: Database) -> None:
    _, first = await made(shared)
    await fetch(
        shared,
        "insert into grns.webhooks (id, workspace, url, kinds, pattern, since_seq, created_by)"
        " select 'wh-' || n, 'default', '', '{}', '', 1, 'me' from generate_series(2, 100) as n",
    )
    with pytest.raises(ConflictError, match="has 100 webhooks"):
        await made(shared)
    await made(shared, workspace="acme")
    await store.delete_webhook(shared, first, **WHO)
    await made(shared)


async def test_webhooks_are_listed_page_by_page(shared: Database) -> None:
    ids = [(await made(shared))[1] for _ in range(3)]
    await made(shared, workspace="acme")
    first = await store.list_webhooks(shared, limit=2, **WHERE)
    rest = await store.list_webhooks(shared, limit=2, after=first.next_cursor, **WHERE)
    assert sorted(row.id for row in first.rows + rest.rows) == sorted(ids)
    assert [row.id for row in first.rows + rest.rows] == sorted(ids, reverse=True)
    assert (len(rest.rows), rest.next_cursor) == (1, None)


async def test_a_webhook_is_changed_as_it_was_seen(shared: Database) -> None:
    _, webhook_id = await made(shared, URL)

    async def change(**said: Any) -> Webhook:
        return await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), **WHO, **said)

    row = await change(kinds=["dlq.task.*"], version=1)
    assert (row.kinds, row.url, row.version) == (["dlq.task.*"], URL, 2)
    with pytest.raises(StaleVersionError, match="at version 2, not at 1"):
        await change(url=URL + "x", version=1)
    row = await change(url=URL + "x", description="new")
    assert (row.url, row.description, row.kinds) == (URL + "x", "new", ["dlq.task.*"])
    assert (await change(description=None)).description is None
    told = [payload_of(event)["fields"] for event in await said(shared, "evt.webhook.changed")]
    assert told == [["kinds"], ["url", "description"], ["description"]]
    for wrong in ({}, {"url": "https://127.0.0.1/"}, {"kinds": ["evt.task.ded"]}, {"description": "\n"}):
        with pytest.raises(InvalidInputError):
            await change(**wrong)
    assert len(await said(shared, "evt.webhook.changed")) == 3


async def test_one_that_is_enabled_again_is_told_of_that_and_of_what_follows(shared: Database) -> None:
    _, webhook_id = await made(shared)
    await fetch(
        shared,
        "update grns.webhooks set is_enabled = false, disabled_reason = 'failing', failing_since = now()",
    )
    row = await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=True, **WHO)
    assert (row.is_enabled, row.disabled_reason, row.failing_since) == (True, None, None)
    (event,) = await said(shared, "evt.webhook.changed")
    assert payload_of(event)["is_enabled"] is True
    (kept,) = await fetch(shared, "select since_seq from grns.webhooks")
    assert kept["since_seq"] == event["seq"]
    await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=True, **WHO)
    (kept,) = await fetch(shared, "select since_seq from grns.webhooks")
    assert kept["since_seq"] == event["seq"], "it was enabled all the time: it has missed nothing"


async def test_a_secret_is_rotated_and_two_are_good_for_a_while(shared: Database) -> None:
    first, webhook_id = await made(shared)
    second, row = await store.rotate_secret(shared, webhook_id, overlap_seconds=60.0, **WHO)
    assert row.old_secret_until is not None
    assert await secrets_of(shared, webhook_id) == [(second.value, True), (first.value, False)]
    third, _ = await store.rotate_secret(shared, webhook_id, overlap_seconds=60.0, **WHO)
    assert await secrets_of(shared, webhook_id) == [(third.value, True), (second.value, False)]
    fourth, row = await store.rotate_secret(shared, webhook_id, overlap_seconds=0.0, **WHO)
    assert row.old_secret_until is None
    assert await secrets_of(shared, webhook_id) == [(fourth.value, True)]
    told = [payload_of(event)["fields"] for event in await said(shared, "evt.webhook.changed")]
    assert told == [["secret"]] * 3
    for seconds in (-1.0, 31 * 86_400.0, float("nan")):
        with pytest.raises(InvalidInputError, match="30 days"):
            await store.rotate_secret(shared, webhook_id, overlap_seconds=seconds, **WHO)


async def test_two_who_rotate_at_once_leave_one_latest_secret(shared: Database) -> None:
    _, webhook_id = await made(shared)
    answers = await asyncio.gather(
        *(store.rotate_secret(shared, webhook_id, **WHO) for _ in range(6)), return_exceptions=True
    )
    won = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert won
    assert all(isinstance(answer, tuple | ConflictError) for answer in answers)
    good = await secrets_of(shared, webhook_id)
    assert [stays for _, stays in good] == [True, False]
    assert good[0][0] in {secret.value for secret, _ in won}
    assert len(await said(shared, "evt.webhook.changed")) == len(won)


async def test_a_ping_is_an_event_and_a_delivery(shared: Database) -> None:
    _, webhook_id = await made(shared, URL, "evt.task.dead")
    seq = await store.ping_webhook(shared, webhook_id, **WHO)
    (event,) = await said(shared, "evt.webhook.pinged")
    assert (event["seq"], payload_of(event)["webhook_id"]) == (seq, webhook_id)
    row = await read_delivery(shared, webhook_id, seq, **WHERE)
    assert (row.kind, row.state, row.attempts) == ("evt.webhook.pinged", "pending", 0)
    assert row.message_id == event["message_id"]
    await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=False, **WHO)
    with pytest.raises(ConflictError, match="is disabled"):
        await store.ping_webhook(shared, webhook_id, **WHO)
    assert len(await said(shared, "evt.webhook.pinged")) == 1


async def test_what_is_not_there_is_not_found(shared: Database) -> None:
    _, theirs = await made(shared, workspace="acme")
    _, deleted = await made(shared)
    await store.delete_webhook(shared, deleted, **WHO)
    for webhook_id in (theirs, deleted, "wh-nothing", "wh\x1b"):
        for asked in (
            store.read_webhook(shared, webhook_id, **WHERE),
            store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=False, **WHO),
            store.delete_webhook(shared, webhook_id, **WHO),
            store.rotate_secret(shared, webhook_id, **WHO),
            store.ping_webhook(shared, webhook_id, **WHO),
            list_deliveries(shared, webhook_id, limit=1, **WHERE),
            read_delivery(shared, webhook_id, 1, **WHERE),
            resend_delivery(shared, webhook_id, 1, **WHO),
        ):
            with pytest.raises(NotFoundError):
                await asked
    assert (await store.read_webhook(shared, theirs, workspace="acme")).version == 1


async def test_what_was_deleted_goes_page_by_page(shared: Database) -> None:
    _, webhook_id = await made(shared)
    _, other = await made(shared)
    for _ in range(5):
        await store.ping_webhook(shared, webhook_id, **WHO)
    await store.ping_webhook(shared, other, **WHO)
    assert await deleted(shared, "delete_webhooks", 2) == 0, "it is not deleted yet"
    await store.delete_webhook(shared, webhook_id, **WHO)
    (event,) = await said(shared, "evt.webhook.deleted")
    assert payload_of(event)["is_enabled"] is False
    assert [await deleted(shared, "delete_webhooks", 2) for _ in range(4)] == [2, 2, 2, 0]
    assert [row["id"] for row in await fetch(shared, "select id from grns.webhooks")] == [other]
    assert len(await deliveries(shared, other)) == 1


async def test_deliveries_go_with_their_time_whatever_came_of_them(shared: Database) -> None:
    _, webhook_id = await made(shared)
    old, new = [await store.ping_webhook(shared, webhook_id, **WHO) for _ in range(2)]
    await fetch(
        shared,
        "update grns.webhook_deliveries set created_at = now() - interval '2 days' where seq = $1",
        old,
    )
    assert await deleted(shared, "delete_webhook_deliveries", 10, 86_400.0) == 1
    assert [row["seq"] for row in await deliveries(shared, webhook_id)] == [new]


async def test_a_tenant_does_all_of_it_and_reads_no_secret(shared: Database) -> None:
    async with as_tenant(shared, "acme") as session:
        secret, webhook_id = await made(session, URL, workspace="acme")  # type: ignore[arg-type]
        new, row = await store.rotate_secret(session, webhook_id, workspace="acme", actor=ACTOR)
        assert row.old_secret_until is not None
        await store.change_webhook(
            session, webhook_id, workspace="acme", actor=ACTOR, guard=UrlPolicy(), description="ours"
        )
        seq = await store.ping_webhook(session, webhook_id, workspace="acme", actor=ACTOR)
        page = await list_deliveries(session, webhook_id, workspace="acme", limit=5)
        assert [one.seq for one in page.rows] == [seq]
        again = await resend_delivery(session, webhook_id, seq, workspace="acme", actor=ACTOR)
        assert again.state == "pending"
    assert [value for value, _ in await secrets_of(shared, webhook_id)] == [new.value, secret.value]
    for column in ("secret", "*"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with as_tenant(shared, "acme") as session, session.connection() as connection:
                await connection.fetch(f"select {column} from grns.webhook_secrets")
    async with as_tenant(shared, "acme") as session:
        await store.delete_webhook(session, webhook_id, workspace="acme", actor=ACTOR)
    assert await secrets_of(shared, webhook_id) == []


async def test_events_of_webhooks_are_as_their_models_say(shared: Database) -> None:
    _, webhook_id = await made(shared)
    seq = await store.ping_webhook(shared, webhook_id, **WHO)
    await resend_delivery(shared, webhook_id, seq, **WHO)
    await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=False, **WHO)
    await store.delete_webhook(shared, webhook_id, **WHO)
    rows = await fetch(shared, "select * from grns.events order by seq")
    assert [row["kind"].rpartition(".")[2] for row in rows] == [
        "created", "pinged", "resent", "changed", "deleted",
    ]  # fmt: skip
    for row in rows:
        told = payload_of(dict(row))
        assert (told["webhook_id"], told["actor"], row["actor"]) == (webhook_id, ACTOR, ACTOR)
    resent = json.loads(rows[2]["payload"])
    assert resent["message_id"] == str(rows[1]["message_id"])
