"""The sender, against servers that take what comes, and against those that do not."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from typing import Any

import pytest

from grns.errors import SealedError
from grns.model.seal import Keyring, MasterKey
from grns.model.url_policy import UrlPolicy
from grns.postgres.database import Database
from grns.tasks.rotate_secrets import count_sealed, rotate
from grns.telemetry.metrics_listener import MetricsListener
from grns.telemetry.service_signals import TickFailed, WebhookDelivered, WebhookDisabled, WebhookNotDelivered
from grns.webhooks import service as store
from grns.webhooks.deliveries import resend_delivery
from tests.support.harness import ROOT, eventually, submit, submit_many
from tests.support.operations import SignalRecorder, payload_of, said
from tests.support.store import ACTOR, fetch, stranger
from tests.support.webhooks import (
    GUARD,
    Receiver,
    deliveries,
    fall_due,
    hanging,
    in_state,
    made,
    sending,
    settle,
    status,
)

WHO: dict[str, Any] = {"workspace": "default", "actor": ACTOR}
EXAMPLES: dict[str, Any] = {}
exec(re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/webhooks.md").read_text(), re.S | re.M)[0], EXAMPLES)  # noqa: S102 - it is what the page says
is_ours = EXAMPLES["is_ours"]


async def test_an_event_is_sent_signed_and_whole(shared: Database) -> None:
    async with Receiver().listening() as server:
        secret, webhook_id = await made(shared, server.url)
        async with sending(shared) as emitted:
            task = await submit(shared)
            await settle(shared)
            (request,) = await server.has(1)
            (row,) = await deliveries(shared, webhook_id)
            await in_state(shared, webhook_id, row["seq"], "delivered", status_code=200, attempts=1)
    (event,) = await said(shared, "evt.task.queued")
    assert request.line == "POST /hook HTTP/1.1"
    assert request.id == str(event["message_id"])
    assert request.headers["content-type"] == "application/json"
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 30
    told = request.document
    assert (told["kind"], told["message_id"], told["schema_version"]) == (event["kind"], request.id, "v1")
    assert (told["workspace"], told["version"], told["trace_id"]) == ("default", 1, task.trace_id)
    assert told["payload"]["task_id"] == task.id
    assert request.is_signed_with(secret)
    assert [signal.webhook for signal in emitted.of(WebhookDelivered)] == [webhook_id]
    webhook = await store.read_webhook(shared, webhook_id, workspace="default")
    assert webhook.last_delivered_at is not None


async def test_what_the_page_says_verifies_it_and_nothing_else(shared: Database) -> None:
    async with Receiver().listening() as server:
        secret, webhook_id = await made(shared, server.url)
        async with sending(shared):
            await store.ping_webhook(shared, webhook_id, **WHO)
            (request,) = await server.has(1)
    shown, headers = secret.reveal(), request.headers
    assert is_ours(headers, request.body, shown)
    assert not is_ours(headers, request.body + b" ", shown)
    assert not is_ours(headers, request.body, "whsec_" + 43 * "A" + "=")
    for name, value in (
        ("webhook-id", "x"),
        ("webhook-timestamp", str(int(headers["webhook-timestamp"]) + 1)),
        ("webhook-timestamp", "1"),
        ("webhook-signature", headers["webhook-signature"].replace("v1,", "v2,")),
        ("webhook-signature", "v1,"),
    ):
        assert not is_ours({**headers, name: value}, request.body, shown), name


async def test_with_keys_its_secret_is_sealed_and_who_has_none_leaves_it_to_others(shared: Database) -> None:
    ring = Keyring([MasterKey.new("key")])
    async with Receiver().listening() as server:
        _, clear_id = await made(shared, server.url)
        shared.vault.keys = ring
        secret, webhook_id = await made(shared, server.url)
        (row,) = await fetch(
            shared, "select secret from grns.webhook_secrets where webhook_id = $1", webhook_id
        )
        assert row["secret"].startswith(b'{"$secret"')
        assert base64.b64encode(secret.value) not in row["secret"]
        shared.vault.keys = None
        async with sending(shared):
            seq = await store.ping_webhook(shared, webhook_id, **WHO)
            other = await store.ping_webhook(shared, clear_id, **WHO)
            await in_state(shared, clear_id, other, "delivered")
            await in_state(shared, webhook_id, seq, "pending", attempts=0)
            shared.vault.keys = ring
            await in_state(shared, webhook_id, seq, "delivered", attempts=1)
    assert server.requests[-1].is_signed_with(secret)


@pytest.mark.parametrize("attempts", [1, 5])
async def test_what_another_key_has_sealed_is_left_to_who_has_it(shared: Database, attempts: int) -> None:
    shared.vault.keys = Keyring([MasterKey.new("key")])
    async with Receiver().listening() as server:
        _, webhook_id = await made(shared, server.url)
        shared.vault.keys = Keyring([MasterKey.new("another")])
        async with sending(shared, webhook_attempts=attempts):
            seq = await store.ping_webhook(shared, webhook_id, **WHO)
            await asyncio.sleep(1.0)
            await in_state(shared, webhook_id, seq, "pending", attempts=0)
            await fetch(  # as if a hand had changed it
                shared,
                "update grns.webhook_secrets set secret = convert_to(replace(convert_from(secret, 'UTF8'),"
                " '1.key.', '1.another.'), 'UTF8')",
            )
            state = "failed" if attempts == 1 else "pending"
            await in_state(shared, webhook_id, seq, state, error="not_ours", attempts=1)
    webhook = await store.read_webhook(shared, webhook_id, workspace="default")
    assert (server.requests, webhook.failing_since) == ([], None)


async def test_rotation_of_keys_seals_secrets_again(shared: Database) -> None:
    old, new = MasterKey.new("old"), MasterKey.new("new")
    shared.vault.keys = Keyring([old])
    secret, webhook_id = await made(shared, "https://example.org/hook")
    await store.rotate_secret(shared, webhook_id, **WHO)
    assert (await count_sealed(shared)).by_key == {"old": 2}
    shared.vault.keys = Keyring([new, old])
    assert await rotate(shared) == 2
    assert (await count_sealed(shared)).by_key == {"new": 2}
    shared.vault.keys = Keyring([new])
    (row, _) = await fetch(shared, "select secret from grns.webhook_secrets order by id")
    assert shared.vault.open_key(row["secret"], "default") == secret.value
    with pytest.raises(SealedError):
        shared.vault.open_key(row["secret"], "another")
    with pytest.raises(SealedError):
        shared.vault.open(json.loads(row["secret"]), "default")


async def test_while_two_secrets_are_good_both_sign(shared: Database) -> None:
    async with Receiver().listening() as server:
        old, webhook_id = await made(shared, server.url)
        new, _ = await store.rotate_secret(shared, webhook_id, **WHO)
        async with sending(shared):
            await store.ping_webhook(shared, webhook_id, **WHO)
            await server.has(1)
            last, _ = await store.rotate_secret(shared, webhook_id, overlap_seconds=0.0, **WHO)
            await store.ping_webhook(shared, webhook_id, **WHO)
            first, second = await server.has(2)
    assert [first.is_signed_with(one) for one in (old, new, last)] == [True, True, False]
    assert [second.is_signed_with(one) for one in (old, new, last)] == [False, False, True]
    assert is_ours(first.headers, first.body, old.reveal())
    assert is_ours(first.headers, first.body, new.reveal())


async def test_what_is_not_taken_is_tried_again_under_its_id(shared: Database) -> None:
    async with Receiver(status(500)).listening() as server:
        _, webhook_id = await made(shared, server.url)
        async with sending(shared) as emitted:
            seq = await store.ping_webhook(shared, webhook_id, **WHO)
            await in_state(shared, webhook_id, seq, "pending", error="http_500", status_code=500, attempts=1)
            webhook = await store.read_webhook(shared, webhook_id, workspace="default")
            assert webhook.failing_since is not None
            server.manner = status(200)
            await fall_due(shared, webhook_id)
            await in_state(shared, webhook_id, seq, "delivered", status_code=200, attempts=2, error=None)
    first, second = server.requests
    assert (first.id, first.body) == (second.id, second.body)
    webhook = await store.read_webhook(shared, webhook_id, workspace="default")
    assert webhook.failing_since is None
    (signal,) = emitted.of(WebhookNotDelivered)
    assert (signal.error, signal.attempt) == ("http_500", 1)
    assert 4.0 <= signal.delay_seconds <= 6.0


async def test_whoever_asks_for_patience_gets_it(shared: Database) -> None:
    async with Receiver(status(429, "Retry-After: 3000")).listening() as server:
        _, webhook_id = await made(shared, server.url)
        async with sending(shared) as emitted:
            seq = await store.ping_webhook(shared, webhook_id, **WHO)
            await in_state(shared, webhook_id, seq, "pending", error="http_429", attempts=1)
    assert emitted.of(WebhookNotDelivered)[0].delay_seconds == 3000.0
    (row,) = await deliveries(shared, webhook_id)
    assert (row["due_at"] - row["attempted_at"]).total_seconds() > 2999


async def test_after_the_last_attempt_it_has_failed_and_can_be_sent_again(shared: Database) -> None:
    async with Receiver(status(404)).listening() as server:
        _, webhook_id = await made(shared, server.url)
        async with sending(shared, webhook_attempts=2):
            seq = await store.ping_webhook(shared, webhook_id, **WHO)
            await in_state(shared, webhook_id, seq, "pending", attempts=1, error="http_404")
            await fall_due(shared, webhook_id)
            await in_state(shared, webhook_id, seq, "failed", attempts=2, error="http_404")
            server.manner = status(200)
            await resend_delivery(shared, webhook_id, seq, **WHO)
            await in_state(shared, webhook_id, seq, "delivered", attempts=3)
    assert len({request.id for request in server.requests}) == 1


async def test_a_sender_that_never_comes_back_spends_the_budget(shared: Database) -> None:
    """What ends each sender that touches it is not touched for ever."""
    async with Receiver().listening() as server:
        _, webhook_id = await made(shared, server.url)
        seq = await store.ping_webhook(shared, webhook_id, **WHO)
        await fetch(shared, "update grns.webhook_deliveries set attempts = 2, claim_id = gen_random_uuid()")
        async with sending(shared, webhook_attempts=2):
            await in_state(shared, webhook_id, seq, "failed", error="given_up")
    assert server.requests == []
    webhook = await store.read_webhook(shared, webhook_id, workspace="default")
    assert webhook.failing_since is None, "that is nothing it has done"


@pytest.mark.parametrize(("days", "manner", "reason"), [(6.0, 500, "failing"), (0.0, 410, "gone")])
async def test_who_does_not_want_it_is_disabled(
    shared: Database, days: float, manner: int, reason: str
) -> None:
    async with Receiver(status(manner)).listening() as server:
        _, webhook_id = await made(shared, server.url)
        await store.ping_webhook(shared, webhook_id, **WHO)
        if days:
            await fetch(shared, "update grns.webhooks set failing_since = now() - interval '6 days'")
        async with sending(shared) as emitted:

            async def is_told() -> bool:
                return bool(emitted.of(WebhookDisabled))

            await eventually(is_told)
            await submit(shared)
            await settle(shared)
            low = await settle(shared)

            async def is_past() -> bool:
                rows = await fetch(shared, "select low from grns.webhook_cursor")
                return bool(rows[0]["low"] >= low)

            await eventually(is_past)
    assert [signal.reason for signal in emitted.of(WebhookDisabled)] == [reason]
    assert len(server.requests) == 1
    assert len(await deliveries(shared, webhook_id)) == 1
    (event,) = await said(shared, "evt.webhook.changed")
    assert payload_of(event)["reason"] == reason


async def test_one_for_which_too_much_waits_is_disabled(shared: Database) -> None:
    _, webhook_id = await made(shared, "http://127.0.0.1:1/hook")
    for _ in range(6):
        await store.ping_webhook(shared, webhook_id, **WHO)
    async with sending(shared, webhook_max_pending=5) as emitted:

        async def is_told() -> bool:
            return bool(emitted.of(WebhookDisabled))

        await eventually(is_told)
    assert [signal.reason for signal in emitted.of(WebhookDisabled)] == ["backlog"]


async def test_one_that_hangs_holds_nobody_else_up(shared: Database) -> None:
    async with Receiver(hanging).listening() as stuck, Receiver().listening() as quick:
        slow, fast = [(await made(shared, server.url))[1] for server in (stuck, quick)]
        await fetch(shared, "update grns.webhooks set failing_since = now() where id = $1", slow)
        for _ in range(5):
            await store.ping_webhook(shared, slow, **WHO)
        async with sending(shared, webhook_window=4, webhook_timeout_seconds=1.0):
            await stuck.has(1)
            began_at = time.monotonic()
            for _ in range(12):
                await store.ping_webhook(shared, fast, **WHO)
            await quick.has(12)
            assert time.monotonic() - began_at < 1.0 + 5.0
            assert len(stuck.requests) <= 1 + (time.monotonic() - began_at) / 0.9, "one at a time"


async def test_many_events_are_sent_once_each_by_two_senders(shared: Database) -> None:
    async with Receiver().listening() as server:
        _, webhook_id = await made(shared, server.url, "evt.task.queued")
        ids = await submit_many(shared, 200)
        await settle(shared)
        async with sending(shared), sending(shared):
            await server.has(200)

            async def are_noted() -> bool:
                return all(row["state"] == "delivered" for row in await deliveries(shared, webhook_id))

            await eventually(are_noted)
    assert sorted(request.document["payload"]["task_id"] for request in server.requests) == sorted(ids)


async def test_sender_with_a_backlog_does_not_wait_for_its_next_tick(shared: Database) -> None:
    async with Receiver().listening() as server:
        await made(shared, server.url, "evt.task.queued")
        await submit_many(shared, 300)
        await settle(shared)
        async with sending(shared, tick_seconds=5.0):
            await server.has(300)  # 10 at a time: with a tick for each ten it takes minutes


async def test_an_event_that_the_log_has_lost_ends_as_that(shared: Database) -> None:
    async with Receiver().listening() as server:
        _, webhook_id = await made(shared, server.url)
        seq = await store.ping_webhook(shared, webhook_id, **WHO)
        await fetch(shared, "delete from grns.events")
        async with sending(shared):
            await in_state(shared, webhook_id, seq, "failed", error="event_gone")
    assert server.requests == []
    webhook = await store.read_webhook(shared, webhook_id, workspace="default")
    assert webhook.failing_since is None


@pytest.mark.parametrize(
    ("setting", "error"),
    [({"webhook_allow_networks": ""}, "forbidden_address"), ({"webhook_allow_http": False}, "bad_url")],
)
async def test_the_sender_has_the_last_word(shared: Database, setting: dict[str, Any], error: str) -> None:
    """Whoever let it be named may have been told otherwise."""
    async with Receiver().listening() as server:
        _, webhook_id = await made(shared, server.url, by=GUARD)
        seq = await store.ping_webhook(shared, webhook_id, **WHO)
        async with sending(shared, **setting):
            await in_state(shared, webhook_id, seq, "pending", error=error, attempts=1)
    assert server.requests == []


async def test_what_is_under_way_at_the_end_comes_to_its_own(shared: Database) -> None:
    async with Receiver().listening() as server:
        answer = asyncio.Event()

        async def wait(_request: Any, writer: asyncio.StreamWriter) -> None:
            await answer.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        server.manner = wait
        _, webhook_id = await made(shared, server.url)
        seq = await store.ping_webhook(shared, webhook_id, **WHO)
        async with sending(shared):
            await server.has(1)
            asyncio.get_running_loop().call_later(0.2, answer.set)
        await in_state(shared, webhook_id, seq, "delivered", attempts=1)


async def test_what_cannot_be_noted_at_once_is_noted_later(shared: Database) -> None:
    """Its row is locked by somebody for longer than anybody waits: it was sent once, and that is known."""
    async with Receiver().listening() as server:
        _, webhook_id = await made(shared, server.url)
        answer = asyncio.Event()

        async def wait(_request: Any, writer: asyncio.StreamWriter) -> None:
            await answer.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        server.manner = wait
        seq = await store.ping_webhook(shared, webhook_id, **WHO)
        async with sending(shared) as emitted:
            await server.has(1)
            async with stranger(shared) as connection:
                await connection.execute("select from grns.webhook_deliveries for update")
                answer.set()

                async def has_failed() -> bool:
                    return bool(emitted.of(TickFailed))

                await eventually(has_failed)
                await connection.execute("commit")
            await in_state(shared, webhook_id, seq, "delivered", attempts=1)
    assert len(server.requests) == 1


async def test_facts_tell_neither_secret_nor_path(shared: Database) -> None:
    async with Receiver(status(500)).listening() as server:
        secret, webhook_id = await made(shared, server.url + "/s3cret?token=t0ken")
        _, other = await made(shared, "http://127.0.0.1:1/s3cret")
        async with sending(shared) as emitted:
            for one in (webhook_id, other):
                seq = await store.ping_webhook(shared, one, **WHO)
                await in_state(shared, one, seq, "pending", attempts=1)
            await server.has(1)

            async def are_told() -> bool:
                return len(emitted.of(WebhookNotDelivered)) == 2

            await eventually(are_told)
    told = repr(emitted.seen) + repr(await deliveries(shared, webhook_id))
    for word in ("s3cret", "t0ken", "whsec_", secret.reveal()[6:]):
        assert word not in told


async def test_metrics_count_what_came_of_it(shared: Database) -> None:
    listener, emitted = MetricsListener(), SignalRecorder()
    async with Receiver(status(500)).listening() as server:
        _, webhook_id = await made(shared, server.url)
        async with sending(shared) as emitted:
            seq = await store.ping_webhook(shared, webhook_id, **WHO)
            await in_state(shared, webhook_id, seq, "pending", attempts=1, error="http_500")
            server.manner = status(410)
            await fall_due(shared, webhook_id)
            await in_state(shared, webhook_id, seq, "failed")
    for signal in emitted.seen:
        listener.receive(signal)
    value = listener.registry.get_sample_value
    assert value("grns_webhook_attempts_total", {"outcome": "http_500"}) == 1
    assert value("grns_webhook_attempts_total", {"outcome": "http_410"}) == 1
    assert value("grns_webhook_seconds_count", {"outcome": "http_410"}) == 1
    assert value("grns_webhooks_disabled_total", {"reason": "gone"}) == 1
    assert value("grns_webhook_behind_rows") == 0


async def test_one_that_was_enabled_is_sent_what_waited(shared: Database) -> None:
    async with Receiver().listening() as server:
        _, webhook_id = await made(shared, server.url)
        seq = await store.ping_webhook(shared, webhook_id, **WHO)
        await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=False, **WHO)
        async with sending(shared):
            await submit(shared)
            await settle(shared)
            await store.change_webhook(shared, webhook_id, guard=UrlPolicy(), is_enabled=True, **WHO)
            await in_state(shared, webhook_id, seq, "delivered")
    assert [request.document["kind"] for request in server.requests] == ["evt.webhook.pinged"]
