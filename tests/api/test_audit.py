"""Every change through the API is in the log, with who made it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from grns.api.app import ROUTES
from grns.api.route import ApiRoute
from grns.model.agent import AgentHeartbeat
from tests.api.test_access import _theirs
from tests.support.api import THEIRS, Door, good
from tests.support.store import fetch

BY_NAME = {route.name: route for route in ROUTES}
# A claim is in the log by its agent, and what came of it; a renewal moves nothing; a recovery is what daemons
# do anyway.
WORK = {
    "recover_tasks",
    "claim_next_task",
    "renew_claim",
    "report_progress",
    "list_claim_steps",
    "record_claim_step",
    "take_claim_signal",
    "suspend_claim",
    "stream_claim",
    "beat_agent",
    "beat_agents",
    "poll_mail",
    "ack_mail",
    "complete_claim",
    "fail_claim",
    "snooze_claim",
    "release_claim",
}
# They change nothing that there is: what refers to a blob is in the log.
PUTS = {"post_blob", "put_blob"}
# It needs a broker: test_api_triage.py.
SENT = {"resend_message"}
CHANGES = [route for route in ROUTES if route.method != "GET" and route.name not in WORK | PUTS | SENT]
# What has to be so before.
FIRST = {
    "redrive_task": ["cancel_task"],
    "discard_task": ["cancel_task"],
    "resume_operation": ["pause_operation"],
    "resume_pool": ["pause_pool"],
    "resume_limit": ["pause_limit"],
    "resume_schedule": ["pause_schedule"],
    "resume_task": ["pause_task"],
    "reset_task": ["cancel_task"],
    "resume_workflow": ["pause_workflow"],
    "resume_agent": ["terminate_agent"],
}
# What tells of two things: a workflow and its task, or the operation on its tasks; a schedule and its task.
TWOFOLD = {
    "create_workflow",
    "extend_workflow",
    "cancel_workflow_tasks",
    "redrive_workflow_tasks",
    "run_schedule",
    "backfill_schedule",
}
_NOW = datetime.now(UTC)
# Lets a worker of their pool declare no schedule, which one before it did.
ORPHANED = """
    with worker as (
        insert into grns.workers (agent_id, workspace, agent_type, host, pid, version, concurrency,
            task_types, lease_seconds, started_at)
        values ('a', $1, 'worker', 'here', 1, '1', 1, '{noop}', 60, now() - interval '1 hour')
    )
    update grns.schedules set declared_at = now() - interval '2 hours' where workspace = $1
"""
RECORDED = """
    insert into grns.steps (task_id, name, workspace, kind, value, attempt)
    values ($1, 'first', $2, 'step', '1', 1)
"""
BODIES: dict[str, Any] = {
    "create_tasks": {"tasks": [{"task_type": "noop"}]},
    "create_task": {"task_type": "noop"},
    "edit_task": {"priority": 0},
    "signal_task": {"name": "approved"},
    "reset_task": {"to": "first"},
    "answer_question": {"answer": {"yes": True}, "digest": "0" * 64},
    "link_question": {},
    "edit_issue": {"state": "acknowledged"},
    "create_workflow": {"name": "two", "tasks": [{"task_type": "noop"}]},
    "extend_workflow": {"tasks": [{"task_type": "noop"}]},
    "put_schedule": {"name": "daily", "cron": "0 9 * * *", "task_type": "noop", "agent_type": "worker"},
    "backfill_schedule": {"start": (_NOW - timedelta(days=1)).isoformat(), "end": _NOW.isoformat()},
    "prune_schedules": {},
    "put_pool_quota": {"max_queued": 10},
    "put_pool_follow_ups": {
        "follow_ups": [{"follows": "noop", "outcome": "failure", "task_type": "tell", "agent_type": "ops"}]
    },
    "put_budget": {"max_cost": 10},
    "allow_budget": {"cost": 5},
    "put_limit_key": {"key": "acme", "max_tasks": 2},
    "put_limit": {"name": "api", "agent_type": "none", "max_tasks": 1},
    "create_operation": {"action": "redrive", "filter": ""},
    "save_filter": {"text": "status:dead"},
    "put_agent": {"agent_type": "worker"},
    "terminate_agent": {},
    "send_mail": {"type": "hello", "to": "theirs"},
    "create_webhook": {"url": "https://example.org/y", "kinds": ["evt.task.dead"]},
    "edit_webhook": {"is_enabled": False},
    "create_key": {"name": "ci", "scopes": ["read"]},
    "create_workspace": {"workspace": "third"},
}


def named(route: ApiRoute) -> str:
    """Return a route's name, for the names of tests."""
    return route.name


async def change(visitor: httpx2.AsyncClient, route: ApiRoute, names: dict[str, str]) -> None:
    """Do what a route does, and have it succeed."""
    path = route.path.format(**{name: names.get(name, "") for name in ("name", *names)})
    body = BODIES.get(route.name)
    said = {} if body is None else {"json": body}
    good(await visitor.request(route.method, path, **said), range(200, 300))


@pytest.mark.parametrize("route", CHANGES, ids=named)
async def test_a_change_is_in_the_log_with_who_made_it(door: Door, route: ApiRoute) -> None:
    names = await _theirs(door.database)
    if route.name == "prune_schedules":
        await fetch(door.database, ORPHANED, THEIRS)
    if route.name == "reset_task":
        await fetch(door.database, RECORDED, names["task_id"], THEIRS)
    if route.name in ("terminate_agent", "resume_agent"):
        await door.context.heartbeats.beat(THEIRS, "theirs", AgentHeartbeat())
    key = await door.key("admin", workspace=None)
    (latest,) = await fetch(door.database, "select max(seq) as seq from grns.events")
    async with door.visitor(key, grns_workspace=THEIRS) as visitor:
        steps = [*FIRST.get(route.name, ()), route.name]
        for step in steps:
            await change(visitor, BY_NAME[step], names)
    told = await fetch(
        door.database,
        "select kind, actor from grns.events where seq > $1 and kind like 'evt.%' order by seq",
        latest["seq"],
    )
    assert len(told) == len(steps) + (route.name in TWOFOLD)
    assert {row["actor"] for row in told} == {f"key:{key.split('_')[1]}"}
