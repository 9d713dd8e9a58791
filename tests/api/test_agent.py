"""Agents over HTTP: what a worker does, behind a token; and nothing that its token does not allow."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from grns.access.keys import authenticate, create_key
from grns.access.principals import BOOTSTRAP
from grns.api.route import PREFIX
from grns.gateway import claims as agent_claims
from grns.gateway.claims import WaitingWorker
from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.model import claim_token
from grns.model.claim_token import ClaimToken, SigningKey
from grns.model.failure import fingerprint
from grns.model.outcome import Verb
from grns.postgres.database import Database
from grns.tasks import pauses as pause
from grns.telemetry.task_signals import (
    AttemptFailed,
    AttemptFinished,
    AttemptReleased,
    AttemptStarted,
    ClaimReturned,
    LeaseLost,
)
from grns.worker.claims import Claimant
from tests.support.api import OURS, THEIRS, Door, good, problem_of
from tests.support.harness import eventually, submit, submit_many
from tests.support.store import (
    ACTOR,
    cancel,
    claim,
    fall_due,
    fetch,
    finish,
    is_waiting_for_lock,
    kinds_of,
    lapse,
    locked,
    log_of,
    release,
    row_of,
    stranger,
)

QUEUE = f"{PREFIX}/queue"
ERROR = {
    "class": "ValueError",
    "message": "no page 17",
    "frames": ["agent.py:12 in fetch", "agent.py:40 in main"],
}
# Each way to write of an attempt, with what else is to be said.
WRITES: dict[str, dict[str, Any]] = {
    "renew": {"progress_percent": 50.0, "current_step": "half of it"},
    "complete": {"result": {"answer": 42}},
    "fail": {"error": ERROR},
    "release": {},
}


async def asked(visitor: httpx2.AsyncClient, *task_types: str, **more: Any) -> httpx2.Response:
    """Ask for a task, without waiting unless that is said."""
    order = {"task_types": task_types or ["noop"], "wait_seconds": 0, **more}
    return await visitor.post(f"{QUEUE}/claim", json=order)


async def claimed(visitor: httpx2.AsyncClient, *task_types: str, **more: Any) -> dict[str, Any]:
    """Claim a task that is there."""
    handed: dict[str, Any] = good(await asked(visitor, *task_types, **more))
    return handed


async def told(visitor: httpx2.AsyncClient, how: str, token: str, **more: Any) -> httpx2.Response:
    """Say something of a task."""
    return await visitor.post(f"{QUEUE}/{how}", json={"token": token, **more})


async def state_of(database: Database, task_id: str) -> Any:
    """Return everything that a write could change."""
    return await row_of(database, task_id), await log_of(database, task_id)


# ---------------------------------------------------------------- as a worker


async def test_a_task_is_claimed_renewed_and_completed(local: httpx2.AsyncClient, door: Door) -> None:
    made = await submit(door.database, payload={"url": "https://a.example/"}, priority=1, max_attempts=5)
    handed = await claimed(local, lease_seconds=30, agent="laptop")
    assert handed["task"] == {
        "id": made.id, "task_type": "noop", "priority": 1, "attempt": 1, "counted_attempt": 1,
        "max_attempts": 5, "payload": {"url": "https://a.example/"}, "trace_id": made.trace_id,
        "checkpoint_data": None,
    }  # fmt: skip
    row = await row_of(door.database, made.id)
    assert (row["status"], row["owner_agent_id"]) == ("running", handed["agent_id"])
    assert row["lease_until"] - row["started_at"] == timedelta(seconds=30)
    await lapse(door.database, made.id)  # nobody has taken it back yet
    renewed = good(await told(local, "renew", handed["token"]))
    assert renewed == {"lease_seconds": 30.0, "cancel_requested": False, "is_overdue": False, "order": None}
    assert (await row_of(door.database, made.id))["lease_until"] > row["lease_until"] - timedelta(seconds=1)
    done = good(await told(local, "complete", handed["token"], result={"text": "é", "n": 2**53 + 1}))
    assert done == {"status": "succeeded"}
    row = await row_of(door.database, made.id)
    assert json.loads(row["result"]) == {"text": "é", "n": 2**53 + 1}
    assert row["result_ref"] == f"db://tasks/{made.id}"
    (finished,) = door.emitted.of(AttemptFinished)
    assert (finished.task_id, finished.status, finished.error_class) == (made.id, "succeeded", None)
    assert [signal.task_id for signal in door.emitted.of(AttemptStarted)] == [made.id]


async def _by_worker(database: Database, how: str, task_id: str) -> None:
    held = await claim(database, task_id)
    if how == "release":
        await release(database, held)
    else:
        await finish(database, held, Verb(how))


async def _over_http(visitor: httpx2.AsyncClient, how: str) -> None:
    token = (await claimed(visitor, max_attempts=3))["token"]
    verb = {"succeed": "complete", "retry": "fail"}.get(how, how)
    more = {**WRITES[verb]} | ({"retry": how == "retry"} if verb == "fail" else {})
    good(await told(visitor, verb, token, **more))


@pytest.mark.parametrize("how", ["succeed", "retry", "fail", "release"])
@pytest.mark.parametrize(
    "road", [{}, {"max_attempts": 1}, {"is_cancelled": True}], ids=["", "last", "cancelled"]
)
async def test_the_log_tells_the_same_as_of_a_worker(
    local: httpx2.AsyncClient, shared: Database, how: str, road: dict[str, Any]
) -> None:
    fields = dict(road)
    is_cancelled = fields.pop("is_cancelled", False)
    stories = []
    for is_worker in (True, False):
        task_id = (await submit(shared, **fields)).id
        if is_cancelled:  # while it runs
            held = await claim(shared, task_id) if is_worker else None
            token = "" if is_worker else (await claimed(local, max_attempts=3))["token"]
            await cancel(shared, task_id)
            if held is not None:
                await (release(shared, held) if how == "release" else finish(shared, held, Verb(how)))
            else:
                verb = {"succeed": "complete", "retry": "fail"}.get(how, how)
                more = {**WRITES[verb]} | ({"retry": how == "retry"} if verb == "fail" else {})
                good(await told(local, verb, token, **more))
        elif is_worker:
            await _by_worker(shared, how, task_id)
        else:
            await _over_http(local, how)
        row = await row_of(shared, task_id)
        story = [
            (event["kind"], event["version"], event["attempt"], event["was"], event["route"],
             sorted(json.loads(event["payload"])))
            for event in await log_of(shared, task_id)
        ]  # fmt: skip
        shape = {name: value is None for name, value in row.items()}
        await cancel(shared, task_id)  # where it is queued again, the next one is not to find it
        stories.append(
            (story, shape, row["status"], row["attempt"], row["uncounted_attempts"], row["attempt_limit"])
        )
    assert stories[0] == stories[1]


async def test_a_failure_is_kept_as_that_of_a_handler(local: httpx2.AsyncClient, door: Door) -> None:
    task_id = (await submit(door.database, max_attempts=2)).id
    first = await claimed(local)
    assert good(await told(local, "fail", first["token"], error=ERROR)) == {"status": "retry_wait"}
    row = await row_of(door.database, task_id)
    assert json.loads(row["last_error"]) == ERROR
    places = ["agent.py:fetch", "agent.py:main"]
    assert row["fingerprint"] == fingerprint("noop", "ValueError", "no page 17", places)
    pause = (row["next_attempt_at"] - row["updated_at"]).total_seconds()
    assert 4.0 <= pause <= 6.0, "5 s, give or take a fifth"
    assert (await asked(local)).status_code == 204, "it is not due"
    await fall_due(door.database, task_id)
    assert await promote(door.database, 10, None)
    second = await claimed(local)
    assert (second["task"]["attempt"], second["task"]["max_attempts"]) == (2, 2)
    said = {"class": "Other", "message": "x" * 4000}
    assert good(await told(local, "fail", second["token"], error=said)) == {"status": "dead"}
    assert [signal.error_class for signal in door.emitted.of(AttemptFailed)] == ["ValueError", "Other"]


async def test_a_failure_says_when_to_try_again(local: httpx2.AsyncClient, shared: Database) -> None:
    task_id = (await submit(shared)).id
    token = (await claimed(local))["token"]
    good(await told(local, "fail", token, error=ERROR, retry_after_seconds=3600))
    row = await row_of(shared, task_id)
    assert row["next_attempt_at"] - row["updated_at"] == timedelta(hours=1)


async def test_an_attempt_given_back_is_not_spent(local: httpx2.AsyncClient, door: Door) -> None:
    task_id = (await submit(door.database, max_attempts=1)).id
    handed = await claimed(local)
    assert good(await told(local, "release", handed["token"], reason="deploy")) == {"status": "queued"}
    (released,) = [row for row in await log_of(door.database, task_id) if row["kind"] == "evt.task.released"]
    assert json.loads(released["payload"])["reason"] == "deploy"
    again = await claimed(local)
    assert (again["task"]["attempt"], again["task"]["counted_attempt"]) == (2, 1)
    assert [signal.verdict for signal in door.emitted.of(AttemptReleased)] == ["queued"]


async def test_an_attempt_that_is_put_off_is_not_spent(local: httpx2.AsyncClient, shared: Database) -> None:
    task_id = (await submit(shared, max_attempts=1)).id
    token = (await claimed(local))["token"]
    for _ in range(2):  # the answer may be lost
        assert good(await told(local, "snooze", token, after_seconds=3600)) == {"status": "retry_wait"}
    row = await row_of(shared, task_id)
    assert row["next_attempt_at"] - row["updated_at"] == timedelta(hours=1)
    assert (row["attempt"], row["uncounted_attempts"]) == (1, 1)
    assert (await kinds_of(shared, task_id)).count("evt.task.snoozed") == 1
    refused = await told(local, "snooze", token, after_seconds=-1)
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_snooze")


async def test_a_cancellation_is_heard_with_the_next_renewal(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    token = (await claimed(local))["token"]
    good(await local.post(f"{PREFIX}/tasks/{task_id}/cancel"))
    assert good(await told(local, "renew", token))["cancel_requested"] is True
    assert good(await told(local, "release", token)) == {"status": "cancelled"}
    assert (await kinds_of(shared, task_id))[-1] == "evt.task.cancelled"


async def test_what_is_reported_is_read_and_in_the_history_of_the_task(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    handed = await claimed(local)
    assert handed["task"]["checkpoint_data"] is None
    said = {"progress_percent": 25.0, "current_step": "reads", "checkpoint_data": {"page": 1}}
    answer = good(await told(local, "renew", handed["token"], **said, remaining_seconds=60.0))
    assert answer == {
        "lease_seconds": handed["lease_seconds"],
        "cancel_requested": False,
        "is_overdue": False,
        "order": None,
    }
    found = good(await local.get(f"{PREFIX}/tasks/{task_id}"))
    assert said.items() <= found.items()
    assert found["estimated_completion_at"] is not None
    listed = good(await local.get(f"{PREFIX}/tasks"))["items"]
    assert [(one["progress_percent"], one["current_step"]) for one in listed] == [(25, "reads")]
    events = good(await local.get(f"{PREFIX}/tasks/{task_id}/events"))["items"]
    (heard,) = [event for event in events if event["kind"] == "evt.attempt.progressed"]
    assert heard["payload"] == {
        "task_id": task_id, "agent_id": handed["agent_id"], "attempt": 1, "progress_percent": 25,
        "current_step": "reads",
    }  # fmt: skip
    assert heard["version"] == (await row_of(shared, task_id))["version"], "it is where it was"


async def test_progress_is_patched_and_the_next_claim_has_the_checkpoint(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    other_id = (await submit(shared)).id
    token = (await claimed(local))["token"]
    place = f"{PREFIX}/tasks/{task_id}/progress"
    said = {"token": token, "progress_percent": 70.0, "checkpoint_data": {"files": 15}}
    assert good(await local.patch(place, json=said))["is_overdue"] is False
    wrong = f"{PREFIX}/tasks/{other_id}/progress"
    assert problem_of(await local.patch(wrong, json=said), 404) == "not_found"
    for bad in (
        {"progress_percent": 101.0},
        {"progress_percent": "half"},
        {"checkpoint": 1},
        {"stall_seconds": 4.0},
    ):
        assert problem_of(await local.patch(place, json={"token": token, **bad}), 400) == "bad_progress"
    large = {"token": token, "checkpoint_data": "x" * 2_000_000}
    assert (await local.patch(place, json=large)).status_code in (400, 413)
    good(await told(local, "release", token))
    assert problem_of(await local.patch(place, json=said), 409) == "stale_token"
    again = await claimed(local)
    while again["task"]["id"] != task_id:
        again = await claimed(local)
    assert again["task"]["checkpoint_data"] == {"files": 15}


async def test_reports_of_a_task_are_written_once_a_second(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    token = (await claimed(local))["token"]
    began_at = time.monotonic()
    for percent in (1.0, 2.0, 3.0):
        good(await told(local, "renew", token, progress_percent=percent))
    assert time.monotonic() - began_at >= 2.0
    began_at = time.monotonic()
    answers = await asyncio.gather(
        *(told(local, "renew", token, progress_percent=float(n), checkpoint_data=n) for n in range(10))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert time.monotonic() - began_at < 4.0, "many that come at once are written together"
    assert good(await local.get(f"{PREFIX}/tasks/{task_id}"))["checkpoint_data"] in range(10)


async def test_an_overdue_worker_hears_of_it_with_each_renewal(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    token = (await claimed(local))["token"]
    good(await told(local, "renew", token, progress_percent=1.0))
    await fetch(shared, "update grns.progress set overdue_seconds = 600 where task_id = $1", task_id)
    assert good(await told(local, "renew", token))["is_overdue"] is True
    assert good(await told(local, "renew", token, progress_percent=2.0))["is_overdue"] is True


# ---------------------------------------------------------------- the fence


@pytest.mark.parametrize("how", WRITES)
async def test_a_token_that_is_none_is_refused(local: httpx2.AsyncClient, how: str) -> None:
    for token in ("t1.nonsense", "x", "t1." + "A" * 1500):
        assert problem_of(await told(local, how, token, **WRITES[how]), 400) == "bad_token"
    for wrong in ({}, {"token": 7}, {"token": ""}, {"token": "x" * 5000}, {"tokens": "x"}):
        answer = await local.post(f"{QUEUE}/{how}", json={**wrong, **WRITES[how]})
        assert problem_of(answer, 400).startswith("bad_")


def opened(token: str) -> ClaimToken:
    """Return what a token says, whoever signed it: as its holder could read it."""
    return ClaimToken.model_validate_json(claim_token.read(token).body)


@pytest.mark.parametrize("how", WRITES)
async def test_a_token_that_somebody_made_up_changes_nothing(
    local: httpx2.AsyncClient, door: Door, shared: Database, how: str
) -> None:
    task_id = (await submit(shared)).id
    real = opened((await claimed(local))["token"])
    before = await state_of(shared, task_id)
    for forged in (
        real.model_copy(update={"lease_id": uuid4()}),
        real.model_copy(update={"attempt": 2}),
        real.model_copy(update={"task_id": "gr-another"}),
    ):
        signed = forged.reveal(await door.context.token_keys.latest())
        assert problem_of(await told(local, how, signed, **WRITES[how]), 409) == "stale_token"
        unsigned = forged.reveal(SigningKey(1, bytes(32)))
        assert problem_of(await told(local, how, unsigned, **WRITES[how]), 400) == "bad_token"
    assert await state_of(shared, task_id) == before


@pytest.mark.parametrize("how", WRITES)
async def test_a_token_of_an_attempt_that_another_has_succeeded_changes_nothing(
    local: httpx2.AsyncClient, door: Door, how: str
) -> None:
    """It was renewed, ran out all the same, and is somebody else's by now."""
    task_id = (await submit(door.database)).id
    old = (await claimed(local, agent="one"))["token"]
    good(await told(local, "renew", old))
    await lapse(door.database, task_id)
    assert len(await reap(door.database, 10, None)) == 1
    assert problem_of(await told(local, how, old, **WRITES[how]), 409) == "stale_token"
    new = await claimed(local, agent="two")
    assert new["task"]["attempt"] == 2
    before = await state_of(door.database, task_id)
    answer = await told(local, how, old, **WRITES[how])
    assert problem_of(answer, 409) == "stale_token"
    assert old not in answer.text
    assert await state_of(door.database, task_id) == before
    assert len(door.emitted.of(LeaseLost)) == 2
    assert good(await told(local, "complete", new["token"])) == {"status": "succeeded"}
    ended = await state_of(door.database, task_id)
    assert problem_of(await told(local, how, old, **WRITES[how]), 409) == "stale_token"
    assert await state_of(door.database, task_id) == ended


@pytest.mark.parametrize("is_isolated", [True, False])
@pytest.mark.parametrize("how", WRITES)
async def test_a_token_of_another_workspace_is_of_no_use(door: Door, how: str, is_isolated: bool) -> None:
    """M3: with row-level security, and without it."""
    task_id = (await submit(door.database, workspace=THEIRS)).id
    async with door.visitor(await door.key("work", workspace=THEIRS)) as they:
        token = (await claimed(they))["token"]
        before = await state_of(door.database, task_id)
        if not is_isolated:
            door.context.isolation._is_there = False
        async with door.visitor(await door.key("work")) as we:
            assert problem_of(await told(we, how, token, **WRITES[how]), 404) == "not_found"
            claims_ours = opened(token).model_copy(update={"workspace": OURS})
            forged = claims_ours.reveal(SigningKey(1, bytes(32)))
            assert problem_of(await told(we, how, forged, **WRITES[how]), 400) == "bad_token"
            # Even with the installation's secret: the statement compares the row's workspace.
            signed = claims_ours.reveal(await door.context.token_keys.latest())
            assert problem_of(await told(we, how, signed, **WRITES[how]), 409) == "stale_token"
        assert await state_of(door.database, task_id) == before
        good(await told(they, how, token, **WRITES[how]))


@pytest.mark.parametrize("how", ["complete", "fail", "release"])
async def test_what_ends_an_attempt_may_be_said_again(
    local: httpx2.AsyncClient, door: Door, how: str
) -> None:
    """Its answer may have got lost; but only the same is answered as before."""
    task_id = (await submit(door.database)).id
    token = (await claimed(local))["token"]
    first = good(await told(local, how, token, **WRITES[how]))
    ended = await state_of(door.database, task_id)
    for _ in range(2):
        assert good(await told(local, how, token, **WRITES[how])) == first
    for other in WRITES.keys() - {how}:
        assert problem_of(await told(local, other, token, **WRITES[other]), 409) == "stale_token"
    assert await state_of(door.database, task_id) == ended
    assert len(door.emitted.of(AttemptFinished)) + len(door.emitted.of(AttemptReleased)) == 1


async def test_many_who_say_the_same_at_once_write_it_once(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    token = (await claimed(local))["token"]
    answers = await asyncio.gather(*(told(local, "complete", token, result=n) for n in range(8)))
    assert [good(answer) for answer in answers] == [{"status": "succeeded"}] * 8
    assert (await kinds_of(shared, task_id)).count("evt.task.completed") == 1


@pytest.mark.parametrize("how", WRITES)
async def test_who_is_only_kept_waiting_is_told_to_ask_again(
    local: httpx2.AsyncClient, shared: Database, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = (await submit(shared)).id
    token = (await claimed(local))["token"]
    monkeypatch.setattr("grns.gateway.attempts._PATIENCE_SECONDS", 0.2)
    async with locked(shared, task_id):
        answer = await told(local, how, token, **WRITES[how])
        assert problem_of(answer, 503) == "unavailable"
        assert answer.headers["retry-after"] == "1"
    monkeypatch.undo()
    good(await told(local, how, token, **WRITES[how]))


@pytest.mark.parametrize(
    ("how", "said", "status", "code"),
    [
        ("complete", {"result": "x" * 300_000}, 413, "too_large"),
        ("complete", {"results": 1}, 400, "bad_completion"),
        ("renew", {"progress_percent": 100.5}, 400, "bad_renewal"),
        ("renew", {"progress_percent": "half"}, 400, "bad_renewal"),
        ("renew", {"message": "x" * 2000}, 400, "bad_renewal"),
        ("fail", {}, 400, "bad_failure"),
        ("fail", {"error": "no"}, 400, "bad_failure"),
        ("fail", {"error": {"message": "no"}}, 400, "bad_failure"),
        ("fail", {"error": {**ERROR, "stack": []}}, 400, "bad_failure"),
        ("fail", {"error": ERROR, "retry_after_seconds": -1}, 400, "bad_failure"),
        ("fail", {"error": ERROR, "retry": "yes"}, 400, "bad_failure"),
        ("release", {"reason": ""}, 400, "bad_release"),
    ],
)
async def test_what_cannot_be_kept_is_refused_and_the_task_goes_on(
    local: httpx2.AsyncClient, shared: Database, how: str, said: dict[str, Any], status: int, code: str
) -> None:
    task_id = (await submit(shared)).id
    token = (await claimed(local))["token"]
    before = await state_of(shared, task_id)
    assert problem_of(await told(local, how, token, **said), status) == code
    assert await state_of(shared, task_id) == before
    good(await told(local, "complete", token))


async def test_numbers_that_are_none_are_refused(local: httpx2.AsyncClient, shared: Database) -> None:
    await submit(shared)
    token = (await claimed(local))["token"]
    body = json.dumps({"token": token, "result": float("nan")})
    headers = {"Content-Type": "application/json"}
    answer = await local.post(f"{QUEUE}/complete", content=body, headers=headers)
    assert problem_of(answer, 400) == "bad_number"


# ---------------------------------------------------------------- who gets what


async def test_a_worker_has_waited_since_its_request_came(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is checked first, which takes as long as Postgres is away; its lease begins afterwards."""

    async def late(*arguments: Any) -> Any:
        await asyncio.sleep(1.0)
        return await authenticate(*arguments)

    await submit(door.database, workspace=OURS)
    async with door.visitor(await door.key("work")) as agent:
        monkeypatch.setattr("grns.api.access.authenticate", late)
        handed = good(await agent.post(f"{QUEUE}/claim", json={"task_types": ["noop"], "wait_seconds": 5}))
    assert 1.0 <= handed["waited_seconds"] < 5


@pytest.mark.parametrize(
    "order",
    [
        {}, {"task_types": []}, {"task_types": ["a.b"]}, {"task_types": "noop"}, {"task_types": ["a"] * 101},
        {"task_types": ["noop"], "agent_type": "instance"}, {"task_types": ["noop"], "agent_type": "a.>"},
        {"task_types": ["noop"], "agent": "a b"}, {"task_types": ["noop"], "wait_seconds": -1},
        {"task_types": ["noop"], "wait_seconds": 1e9}, {"task_types": ["noop"], "lease_seconds": 0},
        {"task_types": ["noop"], "lease_seconds": True}, {"task_types": ["noop"], "max_attempts": 0},
        {"task_types": ["noop"], "version": "a b"}, {"task_types": ["noop"], "owner_agent_id": "me"},
    ],
)  # fmt: skip
async def test_a_claim_that_makes_no_sense_is_refused(
    local: httpx2.AsyncClient, shared: Database, order: dict[str, Any]
) -> None:
    await submit(shared)
    assert problem_of(await local.post(f"{QUEUE}/claim", json=order), 400) == "bad_claim"


async def test_the_most_urgent_comes_first_and_only_what_an_agent_does(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    for task_type, priority, agent_type in (
        ("late", 3, "worker"), ("soon", 0, "worker"), ("other", 0, "worker"), ("late", 0, "another"),
    ):  # fmt: skip
        await submit(shared, task_type, priority=priority, agent_type=agent_type)
    assert [(await claimed(local, "late", "soon"))["task"]["task_type"] for _ in range(2)] == ["soon", "late"]
    assert (await asked(local, "late", "soon")).status_code == 204
    assert (await claimed(local, "late", agent_type="another"))["task"]["priority"] == 0


async def test_of_two_who_ask_one_gets_the_task(local: httpx2.AsyncClient, shared: Database) -> None:
    for _ in range(5):
        task_id = (await submit(shared)).id
        answers = await asyncio.gather(*(asked(local, agent=name) for name in ("one", "two")))
        assert sorted(answer.status_code for answer in answers) == [200, 204]
        (handed,) = [good(answer) for answer in answers if answer.status_code == 200]
        assert (await kinds_of(shared, task_id)).count("evt.task.claimed") == 1
        good(await told(local, "complete", handed["token"]))


async def test_each_of_many_who_wait_gets_one_of_many_tasks(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    waiting = [asyncio.create_task(asked(local, wait_seconds=20, agent=f"a{n}")) for n in range(12)]
    ids = await submit_many(shared, 12)
    answers = [good(answer) for answer in await asyncio.gather(*waiting)]
    assert {answer["task"]["id"] for answer in answers} == set(ids)
    assert len({answer["agent_id"] for answer in answers}) == 12


async def test_what_is_paused_is_given_to_nobody(local: httpx2.AsyncClient, shared: Database) -> None:
    await submit(shared)
    await pause.begin(
        shared, workspace="default", agent_type="worker", task_type=None, actor=ACTOR, reason=None, until=None
    )
    waiting = asyncio.create_task(asked(local, wait_seconds=20))
    for _ in range(3):
        assert (await asked(local)).status_code == 204
    assert not waiting.done()
    await pause.end(shared, workspace="default", agent_type="worker", task_type=None, actor=ACTOR)
    assert good(await waiting)["task"]["task_type"] == "noop"


async def test_a_workspace_keeps_its_tasks_to_itself(door: Door) -> None:
    await submit(door.database)
    await submit(door.database, workspace=THEIRS)
    async with door.visitor(await door.key("work")) as visitor:
        assert (await asked(visitor)).status_code == 204
        made = await submit(door.database, workspace=OURS)
        assert (await claimed(visitor))["task"]["id"] == made.id
    async with door.visitor(await door.key("work", workspace=None)) as visitor:
        answer = await visitor.post(
            f"{QUEUE}/claim",
            json={"task_types": ["noop"], "wait_seconds": 0},
            headers={"Grns-Workspace": THEIRS},
        )
        assert good(answer)["task"]["task_type"] == "noop"


async def test_agents_are_listed_among_the_workers(door: Door) -> None:
    made = await submit(door.database)
    async with await door.administrator() as visitor:
        handed = await claimed(visitor, agent="laptop", version="7.1")
        await asked(visitor, agent="laptop", version="7.1")
        (worker,) = good(await visitor.get(f"{PREFIX}/workers"))["items"]
        assert (worker["agent_id"], worker["host"], worker["version"]) == (
            handed["agent_id"],
            "laptop",
            "7.1",
        )
        assert worker["is_alive"]
        assert worker["task_types"] == ["noop"]
        await asked(visitor, agent="desk")
        assert len(good(await visitor.get(f"{PREFIX}/workers"))["items"]) == 2
        good(await told(visitor, "complete", handed["token"]))
        (attempt,) = good(await visitor.get(f"{PREFIX}/tasks/{made.id}/attempts"))["items"]
        assert (attempt["agent_id"], attempt["outcome"]) == (handed["agent_id"], "succeeded")


async def test_the_status_says_how_much_there_is_and_who_waits(local: httpx2.AsyncClient, door: Door) -> None:
    await submit_many(door.database, 2, agent_type="summary")
    waiting = asyncio.create_task(asked(local, wait_seconds=20))

    async def look() -> Any:
        said = good(await local.get(f"{QUEUE}/status"))
        return said if said["waiting"] and len(said["pools"]) > 1 else None  # pools are read before it

    said = await eventually(look)
    assert said["waiting"] == {"worker": 1}
    pools = {pool["agent_type"]: pool for pool in said["pools"]}
    assert (pools["summary"]["queued"], pools["worker"]["queued"]) == (2, 0)
    assert said["has_more"] is False
    await submit(door.database)
    good(await waiting)


# ---------------------------------------------------------------- waiting


async def test_who_waits_is_answered_as_soon_as_there_is_something(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    waiting = asyncio.create_task(asked(local, wait_seconds=60))
    await asyncio.sleep(0)
    made = await submit(shared)
    handed = good(await asyncio.wait_for(waiting, 20))
    assert handed["task"]["id"] == made.id
    assert 0 <= handed["waited_seconds"] < 20


async def test_who_waits_in_vain_is_told_so(local: httpx2.AsyncClient) -> None:
    answer = await asked(local, wait_seconds=0.5)
    assert (answer.status_code, answer.content) == (204, b"")


async def test_nobody_waits_longer_than_the_server_lets_them(local: httpx2.AsyncClient, door: Door) -> None:
    door.context.http_wait_seconds = 0.1
    assert (await asyncio.wait_for(asked(local, wait_seconds=300), 20)).status_code == 204


async def test_there_are_no_more_who_wait_than_there_is_room_for(
    local: httpx2.AsyncClient, door: Door
) -> None:
    door.context.agent_claims.places.most_of_one = 1
    waiting = asyncio.create_task(asked(local, wait_seconds=60))
    await eventually(lambda: _waits(door))
    answer = await asked(local)
    assert problem_of(answer, 429) == "too_many_requests"
    assert answer.headers["retry-after"] == "1"
    await submit(door.database)
    good(await waiting)


async def test_agent_types_without_end_are_not_asked_for(
    local: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would take durables of the broker."""
    monkeypatch.setattr(agent_claims, "_MOST_TYPES", 2)
    statuses = [(await asked(local, agent_type=name)).status_code for name in ("a", "b", "a", "c", "b")]
    assert statuses == [204, 204, 204, 429, 204]


async def test_at_the_end_of_the_server_nobody_waits(local: httpx2.AsyncClient, door: Door) -> None:
    waiting = asyncio.create_task(asked(local, wait_seconds=60))
    await eventually(lambda: _waits(door))
    door.context.agent_claims.stop()
    assert (await asyncio.wait_for(waiting, 20)).status_code == 204


async def _waits(door: Door) -> bool:
    return bool(door.context.agent_claims.waiting("default"))


def seeking(**changes: Any) -> WaitingWorker:
    """Return somebody who asks for a task."""
    who = Claimant("worker-http", "default", "worker", {"noop": None}, 60.0)
    return WaitingWorker(
        **{
            "claimant": who,
            "name": "x",
            "version": "1",
            "principal": BOOTSTRAP,
            "wait_seconds": 20.0,
            **changes,
        }
    )


@pytest.fixture
async def gone() -> AsyncIterator[asyncio.Future[None]]:
    """Whether whoever asks has gone."""
    found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    yield found
    found.cancel()


async def test_who_has_gone_gets_nothing(door: Door, gone: asyncio.Future[None]) -> None:
    waiting = asyncio.create_task(door.context.agent_claims.next_task(seeking(), gone))
    await eventually(lambda: _waits(door))
    gone.set_result(None)
    assert await asyncio.wait_for(waiting, 20) is None
    task_id = (await submit(door.database)).id
    async with await door.administrator() as visitor:
        assert (await claimed(visitor))["task"]["id"] == task_id
    assert (await kinds_of(door.database, task_id)).count("evt.task.claimed") == 1


async def test_what_was_being_claimed_for_somebody_who_has_gone_is_given_back(
    door: Door, gone: asyncio.Future[None]
) -> None:
    task_id = (await submit(door.database, max_attempts=1)).id
    async with stranger(door.database) as connection:
        await connection.execute("lock table grns.tasks in share row exclusive mode")
        waiting = asyncio.create_task(door.context.agent_claims.next_task(seeking(), gone))
        await eventually(lambda: is_waiting_for_lock(door.database))
        gone.set_result(None)
        await connection.execute("rollback")
    assert await asyncio.wait_for(waiting, 20) is None
    row = await row_of(door.database, task_id)
    assert (row["status"], row["attempt"], row["uncounted_attempts"]) == ("queued", 1, 1)
    assert "evt.task.released" in await kinds_of(door.database, task_id)
    assert [signal.verdict for signal in door.emitted.of(ClaimReturned)] == ["queued"]


async def test_no_token_is_told_to_anybody_else(local: httpx2.AsyncClient, door: Door) -> None:
    made = await submit(door.database)
    token = (await claimed(local))["token"]
    lease_id = opened(token).lease_id
    seen = [repr(signal) for signal in door.emitted.seen]
    paths = ("tasks", f"tasks/{made.id}", f"tasks/{made.id}/events", f"tasks/{made.id}/attempts", "workers")
    seen += [(await local.get(f"{PREFIX}/{path}")).text for path in paths]
    good(await told(local, "complete", token))
    assert problem_of(await told(local, "fail", token, error=ERROR), 409) == "stale_token"
    seen += [repr(signal) for signal in door.emitted.seen]
    assert not any(word in text for text in seen for word in (token, str(lease_id), lease_id.hex))


@pytest.mark.parametrize("how", WRITES)
async def test_key_of_another_pool_neither_claims_nor_ends(door: Door, how: str) -> None:
    """L15: `work` for a summarizer is no `work` for what charges."""
    made, _ = await create_key(
        door.database, workspace=OURS, name="t", scopes=["work"], pools=["summarizer"], actor="cli:ann@desk"
    )
    task_id = (await submit(door.database, workspace=OURS)).id
    async with door.visitor(await door.key("work")) as they, door.visitor(made.reveal()) as we:
        asked = {"agent_type": "worker", "task_types": ["noop"], "wait_seconds": 0}
        assert problem_of(await we.post(f"{QUEUE}/claim", json=asked), 403) == "forbidden"
        token = (await claimed(they))["token"]
        before = await state_of(door.database, task_id)
        assert problem_of(await told(we, how, token, **WRITES[how]), 403) == "forbidden"
        assert await state_of(door.database, task_id) == before
        own = {**asked, "agent_type": "summarizer"}
        assert (await we.post(f"{QUEUE}/claim", json=own)).status_code == 204


async def test_admin_bound_to_pools_makes_keys_for_these_alone(door: Door) -> None:
    """L15: otherwise the bound would end with the first key it makes."""
    made, _ = await create_key(
        door.database, workspace=OURS, name="t", scopes=["admin"], pools=["a", "b"], actor="cli:ann@desk"
    )
    async with door.visitor(made.reveal()) as we:
        for pools in (None, ["a", "c"], ["c"]):
            order = {"name": "x", "scopes": ["work"], "pools": pools}
            assert problem_of(await we.post(f"{PREFIX}/keys", json=order), 403) == "forbidden"
        found = good(await we.post(f"{PREFIX}/keys", json={"name": "x", "scopes": ["work"], "pools": ["a"]}))
        assert found["pools"] == ["a"]
