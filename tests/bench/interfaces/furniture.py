"""What people have left in the workspace beside tasks, and what of the table questions are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.interfaces.door import Door
from tests.bench.interfaces.life import OURS
from tests.bench.interfaces.size import Sizes
from tests.bench.interfaces.table import sql
from tests.bench.stage import Stage

_OPERATIONS, _FILTERS, _KEYS, _WEBHOOKS, _DISCARDED = 120, 60, 60, 10, 20
_STATES = ("waiting", "queued", "running", "retry_wait", "succeeded", "failed", "dead", "cancelled")
# Some that are spread over all of the state, whichever way its index goes.
_OF_A_STATE = """
    select id from grns.tasks where workspace = $1 and status = $2 order by md5(id) limit $3
"""
_DELIVERIES = """
    select seq from grns.webhook_deliveries where webhook_id = $1 order by md5(seq::text) limit $2
"""


_QUESTION = """
    insert into grns.questions (id, workspace, task_id, step, kind, title, form, asked_of, digest, attempt)
    values (gen_random_uuid(), $1, $2, 'ask pay', 'approval', 'Pay?',
        '{"properties": {}, "required": []}', '{}', '', 1)
    returning id
"""


@dataclass(frozen=True)
class Things:
    """Names to ask for."""

    tasks: dict[str, list[str]]
    fingerprints: Sequence[str]
    biggest: str
    smallest: str
    trace: str
    filters: Sequence[str]
    keys: Sequence[str]
    operations: Sequence[str]
    messages: Sequence[str]
    webhook: str
    deliveries: Sequence[int]
    workflow: str
    schedule: str
    limit: str
    question: str
    agent: str
    agent_types: Sequence[str]
    blob: str

    @property
    def some(self) -> list[str]:
        """Tasks of all states, in turn."""
        most = max(len(ids) for ids in self.tasks.values())
        return [ids[place % len(ids)] for place in range(most) for ids in self.tasks.values()]


async def furnish(stage: Stage, sizes: Sizes, door: Door) -> Things:
    """Do what people do in a workspace, through the door, and return what there is then."""
    tasks = {
        state: [row["id"] for row in await stage.connection.fetch(_OF_A_STATE, OURS, state, sizes.samples)]
        for state in _STATES
    }
    await stage.connection.execute(sql("fill_labels"))
    await stage.connection.execute("vacuum analyze grns.labels, grns.tags, grns.texts, grns.words")
    operations = [_operation(door, number) for number in range(_OPERATIONS)]
    filters = [f"saved-{number}" for number in range(_FILTERS)]
    for number, name in enumerate(filters):
        text = f"status:dead type:send_mail attempt:>{number % 3}"
        door.act(f"/filters/{name}", {"text": text}, method="PUT")
    keys = [door.act("/keys", {"name": f"key-{number}", "scopes": ["read"]})["id"] for number in range(_KEYS)]
    webhooks = [
        door.act("/webhooks", {"url": f"https://hooks.example.com/{number}", "kinds": ["evt.task.dead"]})[
            "id"
        ]
        for number in range(_WEBHOOKS)
    ]
    for task_id in tasks["cancelled"][:_DISCARDED]:
        door.act(f"/tasks/{task_id}/discard", {"reason": "dealt with"})
    door.act("/pools/imager/pause", {"reason": "the disk is full"})
    await stage.connection.execute(
        sql("fill_deliveries"), webhooks[0], OURS, "evt.task.dead", min(sizes.deliveries, sizes.dead)
    )
    await stage.connection.execute("vacuum analyze grns.webhook_deliveries")
    steps = [
        {"name": str(number), "task_type": "send_mail", "delay_seconds": 86_400} for number in range(200)
    ]
    last = {"task_type": "send_mail", "needs": [step["name"] for step in steps]}
    workflow = door.act("/workflows", {"name": "report", "tasks": [*steps, last]})["id"]
    daily = {"name": "daily", "cron": "0 9 * * *", "task_type": "send_mail", "agent_type": "mailer"}
    schedule = door.act("/schedules", daily)["name"]
    one = {"name": "mail", "agent_type": "mailer", "key": "to", "max_tasks": 5}
    limit = door.act("/limits", one)["name"]
    door.act("/budgets/mail", {"agent_type": "mailer", "max_cost": 10}, method="PUT")
    agent = door.act("/agents/mailer-1", {"agent_type": "mailer"}, method="PUT")["name"]
    question = str(await stage.connection.fetchval(_QUESTION, OURS, tasks["queued"][0]))
    blob = await stage.connection.fetchval(
        "select grns.put_blob(convert_to(repeat('x', 100000), 'utf8'), workspace => $1) ->> '$blob'", OURS
    )
    return await _things(
        stage, sizes, tasks, operations, filters, keys, webhooks[0], workflow, schedule, limit, question,
        agent, blob,
    )  # fmt: skip


def _operation(door: Door, number: int) -> str:
    """Ask for something to be done to nothing, and end it: nobody runs it."""
    wanted = {"action": "redrive", "filter": f"id:gr-none-{number}", "reason": "the mailer was down"}
    made: str = str(door.act("/operations", wanted)["id"])
    door.act(f"/operations/{made}/cancel", {"reason": "not needed"})
    return made


async def _things(
    stage: Stage, sizes: Sizes, tasks: dict[str, list[str]], operations: list[str], filters: list[str],
    keys: list[str], webhook: str, workflow: str, schedule: str, limit: str, question: str,
    agent: str, blob: str,
) -> Things:  # fmt: skip
    issues = await _column(
        stage, "select fingerprint from grns.issues where workspace = $1 order by open_count desc", OURS
    )
    return Things(
        tasks=tasks,
        fingerprints=issues,
        biggest=issues[0],
        smallest=issues[-1],
        trace=str(
            await stage.connection.fetchval(
                "select trace_id from grns.tasks where id = $1", tasks["succeeded"][0]
            )
        ),
        filters=filters,
        keys=keys,
        operations=operations,
        messages=await _column(
            stage, "select id::text from grns.dead_letters where workspace = $1 limit $2", OURS, sizes.samples
        ),
        webhook=webhook,
        workflow=workflow,
        schedule=schedule,
        limit=limit,
        blob=blob,
        question=question,
        agent=agent,
        deliveries=await _column(
            stage, _DELIVERIES,
            webhook, sizes.samples,
        ),
        agent_types=await _column(
            stage, "select distinct agent_type from grns.workers where workspace = $1 order by 1", OURS
        ),
    )  # fmt: skip


async def _column(stage: Stage, query: str, *arguments: object) -> list[Any]:
    return [row[0] for row in await stage.connection.fetch(query, *arguments)]
