"""Why a task is where it is, told over HTTP: to whoever may see the task."""

from __future__ import annotations

import httpx2

from grns.api.route import PREFIX
from grns.postgres.database import Database
from tests.support.api import Door, good, problem_of
from tests.support.harness import submit


async def test_it_is_told_over_http(door: Door, local: httpx2.AsyncClient, shared: Database) -> None:
    task_id = (await submit(shared)).id
    found = good(await local.get(f"{PREFIX}/tasks/{task_id}/explain"))
    assert (found["reason"], found["status"], found["claim"]) == ("no_worker", "queued", "claimable")
    assert found["sentence"] == found["reasons"][0]["sentence"]
    assert [step["kind"] for step in found["steps"]] == ["evt.task.queued"]
    assert problem_of(await local.get(f"{PREFIX}/tasks/gr-nobody/explain"), 404) == "not_found"
    async with door.visitor(await door.key("read")) as visitor:
        assert problem_of(await visitor.get(f"{PREFIX}/tasks/{task_id}/explain"), 404) == "not_found"
        ours = (await submit(shared, workspace="acme")).id
        assert good(await visitor.get(f"{PREFIX}/tasks/{ours}/explain"))["reason"] == "no_worker"
