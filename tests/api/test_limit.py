"""Limits over HTTP: created, replaced, listed, paused and deleted, and the tasks of their keys."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from grns.api.route import PREFIX
from grns.postgres.database import Database
from tests.support.admitters import admit
from tests.support.api import good, problem_of
from tests.support.followers import begin_here
from tests.support.store import claim

LIMITS = f"{PREFIX}/limits"


def per_tenant(**more: Any) -> dict[str, Any]:
    """Return a limit of each tenant."""
    return {"name": "tenant", "agent_type": "worker", "key": "tenant_id", "max_tasks": 2, **more}


async def test_limit_from_its_creation_to_its_end(local: httpx2.AsyncClient, shared: Database) -> None:
    await begin_here(shared)
    answer = await local.post(LIMITS, json=per_tenant())
    made, path = good(answer, [201]), f"{LIMITS}/tenant"
    assert answer.headers["location"] == path
    assert (made["version"], made["max_tasks"], made["rate_count"]) == (1, 2, None)
    assert made["pools"] == [{"agent_type": "worker", "task_types": None, "key": "tenant_id"}]
    for _ in range(4):
        task = good(
            await local.post(f"{PREFIX}/tasks", json={"task_type": "noop", "payload": {"tenant_id": "acme"}}),
            [201],
        )
    task = good(await local.get(f"{PREFIX}/tasks/{task['id']}"))
    assert (task["status"], task["waits_for"], task["limits"]) == ("waiting", "limit", ["tenant:acme"])
    await admit(shared)
    page = good(await local.get(f"{PREFIX}/tasks?filter=status:queued"))
    await claim(shared, page["items"][0]["id"])
    (key,) = good(await local.get(f"{path}/keys"))["items"]
    assert (key["key"], key["waiting"], key["queued"], key["running"]) == ("acme", 2, 1, 1)
    told = good(await local.get(f"{PREFIX}/tasks/{task['id']}/explain"))
    assert told["sentence"] == "waiting for limit tenant:acme: 2 of 2 are queued or running; 1 task before it"
    other = good(await local.post(LIMITS, json=per_tenant(agent_type="other", rate="10/1m")), [201])
    assert [one["agent_type"] for one in other["pools"]] == ["other", "worker"]
    assert (other["rate_count"], other["rate_seconds"], other["burst"], other["version"]) == (10, 60, 1, 2)
    assert [one["name"] for one in good(await local.get(LIMITS))["items"]] == ["tenant"]
    paused = good(await local.post(f"{path}/pause", json={"reason": "outage"}))
    assert paused["pause_reason"] == "outage"
    told = good(await local.get(f"{PREFIX}/tasks/{task['id']}/explain"))
    assert "its limit tenant was paused by" in told["sentence"]
    assert good(await local.post(f"{path}/resume"))["paused_at"] is None
    assert good(await local.delete(path))["name"] == "tenant"
    assert problem_of(await local.get(path), 404) == "not_found"
    assert problem_of(await local.get(f"{path}/keys"), 404) == "not_found"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_tasks": 0}, "max_tasks"),
        ({"max_tasks": None}, "pass a maximum, a rate, or both"),
        ({"rate": "many"}, "500/1m"),
        ({"rate": "0/1m"}, "500/1m"),
        ({"rate": "5/0s"}, "500/1m"),
        ({"burst": 3}, "burst goes with a rate"),
        ({"key": "a..b"}, "key"),
        ({"task_types": []}, "task_types"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_what_cannot_be_is_refused(local: httpx2.AsyncClient, more: dict[str, Any], words: str) -> None:
    answer = await local.post(LIMITS, json=per_tenant(**more))
    assert problem_of(answer, 400) == "bad_limit"
    assert words in answer.json()["detail"]
