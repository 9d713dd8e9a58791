"""Webhooks in words: kinds, secrets, signatures, and when something is tried again."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime

import pytest

from grns.errors import InvalidInputError
from grns.model.api_key import redacted
from grns.model.events import PAYLOADS
from grns.webhooks import model as webhook
from grns.webhooks import signature
from grns.webhooks.signature import Secret


def test_a_signature_is_that_of_the_standard() -> None:
    """The example that its libraries test themselves with."""
    secret = Secret(base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    found = signature.sign([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert found == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_each_secret_signs_for_itself() -> None:
    one, other = signature.make_secret(), signature.make_secret()
    both = signature.sign([one, other], "id", 1, b"{}")["webhook-signature"]
    assert both == " ".join(
        signature.sign([key], "id", 1, b"{}")["webhook-signature"] for key in (one, other)
    )
    assert len(set(both.split(" "))) == 2


def test_a_secret_is_shown_on_purpose_only() -> None:
    secret = signature.make_secret()
    shown = secret.reveal()
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", shown)
    assert base64.b64decode(shown.removeprefix("whsec_")) == secret.value
    assert repr(secret) == "Secret()"
    assert redacted(f"what {shown} says") == "what whsec_*** says"
    assert signature.make_secret() != secret


def test_ids_sort_by_time() -> None:
    ids = [webhook.make_id(milliseconds) for milliseconds in (1, 255, 256, 2**40)]
    assert ids == sorted(ids)
    assert len(set(map(len, ids))) == 1


@pytest.mark.parametrize(
    ("kinds", "told", "untold"),
    [
        (["evt.task.dead"], {"evt.task.dead"}, {"evt.task.deadly", "evt.task", "dlq.task.dead"}),
        (["evt.task.*"], {"evt.task.dead", "evt.task.queued"}, {"evt.pool.paused", "evt.task.a.b"}),
        (["evt.*.*", "dlq.task.*"], {"evt.pool.paused", "dlq.task.dead"}, {"dlq.message.rejected"}),
    ],
)  # fmt: skip
def test_kinds_say_what_is_told(kinds: list[str], told: set[str], untold: set[str]) -> None:
    assert webhook.check_kinds([*kinds, *kinds]) == kinds
    pattern = re.compile(webhook.pattern(kinds))
    assert {kind for kind in told | untold if pattern.search(kind)} == told


@pytest.mark.parametrize(
    "kind",
    ["", "evt", "evt.task", "evt.task.", "evt.task.ded", "evt.agent.*", "evt.agent.*.*.*", "cmd.task.execute",
     "cmd.*.*", "*.*.*", "evt.task.dead.v1", "evt.task.de*", "evt.task.dead\n", "evt.task.(a|b)",
     "dlq.agent.a.b", "evt.*.*.*.*"],
)  # fmt: skip
def test_kinds_that_never_come_are_refused(kind: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a kind of event") as refused:
        webhook.check_kinds(["evt.task.dead", kind])
    assert refused.value.code == "bad_kind"


def test_how_many_kinds_there_may_be() -> None:
    known = [kind for kind in PAYLOADS if kind.startswith("evt.")]
    assert len(known) > webhook.MOST_KINDS
    webhook.check_kinds(known[: webhook.MOST_KINDS])
    for wrong in ([], known):
        with pytest.raises(InvalidInputError, match="1 to 20 kinds"):
            webhook.check_kinds(wrong)


def test_every_known_kind_but_commands_can_be_asked_for() -> None:
    for kind in PAYLOADS:
        if kind.startswith("cmd."):
            with pytest.raises(InvalidInputError):
                webhook.check_kinds([kind])
        else:
            webhook.check_kinds([kind])


def test_delays_grow_for_about_three_days() -> None:
    delays = [webhook.delay_seconds(attempt, 0.5) for attempt in range(1, 11)]
    assert delays[0] == pytest.approx(5.0)
    assert delays == sorted(delays)
    assert 3.0 < sum(delays) / 86_400 < 3.5
    assert webhook.delay_seconds(50, 0.5) == webhook.delay_seconds(10, 0.5)
    assert webhook.delay_seconds(1, 0.0) == pytest.approx(4.0)
    assert webhook.delay_seconds(1, 0.999999) == pytest.approx(6.0, abs=0.001)


def test_who_asks_for_patience_gets_it_within_bounds() -> None:
    assert webhook.delay_seconds(1, 0.5, asked_seconds=120.0) == 120.0
    assert webhook.delay_seconds(5, 0.5, asked_seconds=120.0) == pytest.approx(7200.0)
    assert webhook.delay_seconds(1, 0.5, asked_seconds=10.0**9) == 86_400.0


@pytest.mark.parametrize(
    ("kind", "was", "statuses"),
    [
        ("evt.task.claimed", "q", {"previous_status": "queued", "new_status": "running"}),
        ("evt.task.dead", "r", {"previous_status": "running", "new_status": "dead"}),
        ("evt.task.queued", None, {"new_status": "queued"}),
        ("evt.task.changed", None, {}),
    ],
)
def test_a_request_says_the_statuses_of_a_transition(
    kind: str, was: str | None, statuses: dict[str, str]
) -> None:
    body = webhook.document(
        workspace="default", version=2, was=was, kind=kind, message_id="00000000-0000-0000-0000-000000000001",
        trace_id="trace", causation_id=None,
        emitted_at=datetime(2026, 1, 1, tzinfo=UTC), payload='{"task_id":"gr-1"}',
    )  # fmt: skip
    said = json.loads(body)
    assert {name: said[name] for name in ("previous_status", "new_status") if name in said} == statuses
    assert (said["workspace"], said["version"]) == ("default", 2)
