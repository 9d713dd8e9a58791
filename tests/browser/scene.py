"""A day at a company that crawls, summarizes and mails: something of everything, for tests and for pictures.

All of it goes through the real doors and handlers, but for the past: what happened in the hours before is
written into the tables of the counter, since nobody waits for so long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import nats

from grns.access.keys import create_key
from grns.access.workspaces import create_workspace
from grns.model.filter import parse
from grns.model.submission import submission
from grns.model.url_policy import UrlPolicy
from grns.operations import service as operation
from grns.operations.model import request
from grns.settings import load
from grns.stats import issues as issue
from grns.tasks import pauses as pause
from grns.tasks import saved_filters as saved_filter
from grns.tasks.submit import Submissions, Submitted, prepare
from grns.webhooks.service import create_webhook, ping_webhook
from tests.browser.stage import Stage
from tests.support.harness import all_in, eventually

ANN, BO = "cli:ann@desk", "cli:bo@desk"
_WAIT_SECONDS = 90.0
_REJECTED = (
    b'{"schema_version": "v1", "kind": "cmd.task.execute", "payload": {"task_id": "gr-0',
    b'{"schema_version": "v7", "message_id": "7dc6e5af-0776-4f37-8f16-5767f5f9471f", "kind": "cmd.x.y"}',
    b"\x00\x01 not a message at all",
)


@dataclass(frozen=True)
class Scene:
    """Where something of everything is."""

    dead: str
    running: str
    queued: str
    waiting: str
    succeeded: str
    fingerprint: str
    message: str
    operation: int
    paused: int
    webhook: str
    delivery: int

    @property
    def pages(self) -> dict[str, str]:
        """The pages of all that there is, each with a name."""
        return {
            "overview": "/",
            "issues": "/issues",
            "issue": f"/issues/{self.fingerprint}",
            "tasks": "/tasks?filter=status:dead",
            "task": f"/tasks/{self.dead}",
            "task-running": f"/tasks/{self.running}",
            "task-queued": f"/tasks/{self.queued}",
            "task-waiting": f"/tasks/{self.waiting}",
            "task-succeeded": f"/tasks/{self.succeeded}",
            "edit": f"/tasks/{self.dead}/edit",
            "operations": "/operations",
            "operation": f"/operations/{self.operation}",
            "operation-paused": f"/operations/{self.paused}",
            "operation-new": f"/operations/new?action=redrive&filter=fingerprint:{self.fingerprint}",
            "pools": "/pools",
            "pool": "/pools/courier",
            "workers": "/workers",
            "events": "/events?kind=evt.task.*",
            "messages": "/messages",
            "message": f"/messages/{self.message}",
            "webhooks": "/webhooks",
            "webhook": f"/webhooks/{self.webhook}",
            "delivery": f"/webhooks/{self.webhook}/deliveries/{self.delivery}",
            "installation": "/installation",
            "keys": "/keys",
            "workspaces": "/workspaces",
            "help": "/help",
        }


async def played(stage: Stage, *, share: float = 1.0) -> Scene:
    """Let there be something of everything: some thousand tasks, or a share of them."""

    def some(count: int) -> range:
        return range(max(2, round(count * share)))

    fetched = [_page(f"https://news.example/{n}") for n in some(2400)]
    lost = [_page(f"https://search.internal/pages/{n}", trace_id=f"nightly-{n % 7}") for n in some(1840)]
    docs = [_page(f"https://docs.internal/pages/{n}") for n in some(260)]
    feeds = [_task("parse_feed", {"feed": f"https://feeds.example/{n}", "format": "atom"}) for n in some(212)]
    long = [_written("summarize", {"document": f"long-report-{n}"}) for n in some(96)]
    texts = [_written("translate", {"document": f"note-{n}", "into": "de"}) for n in some(300)]
    later = [_written("translate", {"document": f"note-{n}", "into": "tlh"}) for n in some(14)]
    paid = [_written("charge", {"order": f"o-{n}", "cents": 1900 + n}, priority=0) for n in some(480)]
    declined = [_written("charge", {"order": f"o-9{n}", "cents": 64_900}, priority=0) for n in some(31)]
    running = [_task("render_page", {"url": f"https://shop.example/{n}"}) for n in range(3)]

    dead = await submit_each(stage, [*lost, *docs, *feeds, *long])
    done = await submit_each(stage, [*fetched, *texts, *paid])
    failed = await submit_each(stage, declined)
    retried = await submit_each(stage, later)
    busy = await submit_each(stage, running)
    await all_in(stage.database, done, within_seconds=_WAIT_SECONDS)
    await all_in(stage.database, dead, "dead", within_seconds=_WAIT_SECONDS)
    await all_in(stage.database, failed, "failed", within_seconds=_WAIT_SECONDS)
    await all_in(stage.database, retried, "retry_wait", within_seconds=_WAIT_SECONDS)
    await all_in(stage.database, busy, "running", within_seconds=_WAIT_SECONDS)

    queued, waiting = await _kept(stage, [_mail(n) for n in some(340)], [_mail(n, 7200.0) for n in some(25)])
    await submit_each(stage, [_task("read_scan", {"scan": n}, agent_type="ocr") for n in some(12)])
    message = await _rejected(stage)
    fingerprint = await _fingerprint(stage, dead[0])
    mended, paused = await _operated(stage, await _fingerprint(stage, dead[len(lost)]))
    await _said(stage, fingerprint)
    webhook, delivery = await _told(stage)
    await _past(stage)
    return Scene(
        dead[0],
        busy[0],
        queued,
        waiting,
        done[-1],
        fingerprint,
        message,
        mended,
        paused,
        webhook,
        delivery,
    )


async def submit_each(stage: Stage, tasks: Iterable[dict[str, Any]]) -> list[str]:
    """Create tasks, each with fields of its own, and return their ids."""
    limits = load().payload_limits
    prepared = [prepare(submission(**fields), limits) for fields in tasks]
    answers = await Submissions(stage.database, batch_limit=10).submit_many(prepared)
    return [answer.id for answer in answers if isinstance(answer, Submitted)]


async def _told(stage: Stage) -> tuple[str, int]:
    """Let somebody be told of events; nobody answers there."""
    kinds = ["evt.issue.*", "evt.operation.ended"]
    _, made = await create_webhook(
        stage.database,
        workspace="default",
        url="https://hooks.example.org/on-call/secret",
        kinds=kinds,
        description="on call",
        guard=UrlPolicy(),
        actor=ANN,
    )
    await create_webhook(
        stage.database,
        workspace="default",
        url="https://billing.example.org/grns",
        kinds=["evt.task.completed"],
        guard=UrlPolicy(),
        actor=BO,
    )
    return made.id, await ping_webhook(stage.database, made.id, workspace="default", actor=ANN)


def _page(url: str, **more: Any) -> dict[str, Any]:
    return _task("fetch_page", {"url": url, "depth": "2"}, **more)


def _task(task_type: str, payload: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"task_type": task_type, "agent_type": "crawler", "payload": payload, **more}


def _written(task_type: str, payload: dict[str, Any], **more: Any) -> dict[str, Any]:
    return _task(task_type, payload, agent_type="writer", **more)


def _mail(number: int, delay_seconds: float = 0.0) -> dict[str, Any]:
    return _task(
        "send_mail",
        {"to": f"reader-{number}@mail.example", "subject": "What happened today"},
        agent_type="courier",
        priority=3,
        delay_seconds=delay_seconds,
        idempotency_key=f"mail-{number}-{delay_seconds:.0f}",
    )


async def _kept(
    stage: Stage, mails: Sequence[dict[str, Any]], later: Sequence[dict[str, Any]]
) -> tuple[str, str]:
    """Pause the courier, and let mails wait for it; return one that is queued, and one that is not due."""
    await pause.begin(
        stage.database, workspace="default", agent_type="courier", task_type=None, actor=BO,
        reason="the mail provider is down until noon", until=3 * 3600.0,
    )  # fmt: skip
    queued = await submit_each(stage, mails)
    waiting = await submit_each(stage, later)
    return queued[0], waiting[0]


async def _rejected(stage: Stage) -> str:
    """Have strangers send what nobody can accept; return the latest of it."""
    client = await nats.connect(stage.broker_url)
    try:
        for body in _REJECTED:
            await client.publish("cmd.task.execute.v1", body, headers={"App": "scheduler"})
        await client.flush()
    finally:
        await client.close()

    async def look() -> list[Any]:
        rows = await _rows(stage, "select id from grns.dead_letters order by created_at desc, id")
        return rows if len(rows) >= len(_REJECTED) else []

    return str((await eventually(look))[0]["id"])


async def _fingerprint(stage: Stage, task_id: str) -> str:
    """Return the issue of a task, once it is counted."""
    (task,) = await _rows(stage, "select fingerprint from grns.tasks where id = $1", task_id)

    async def look() -> list[Any]:
        return await _rows(
            stage, "select 1 from grns.issues where fingerprint = $1 and open_count > 1", task["fingerprint"]
        )

    await eventually(look)
    return str(task["fingerprint"])


async def _operated(stage: Stage, docs: str) -> tuple[int, int]:
    """Redrive what was mended, and with a canary what was not; return both operations."""
    stage.mend("docs.internal")
    mended = await _begin(stage, f"fingerprint:{docs}", "the host is back")
    await _is(stage, mended, "done")
    tried = await _begin(stage, "type:parse_feed", "does the new parser know them?", canary=True)
    await _is(stage, tried, "paused")
    wrong = await _begin(stage, "type:summarize", "the wrong ones", rate_per_minute=1.0)
    await operation.cancel_operation(stage.database, wrong, workspace="default", actor=BO)
    return mended, tried


async def _begin(stage: Stage, text: str, reason: str, **more: Any) -> int:
    wanted = request(action="redrive", filter=text, reason=reason, **more)
    made = await operation.create_operation(stage.database, wanted, workspace="default", actor=ANN)
    return int(made.id)


async def _is(stage: Stage, number: int, state: str) -> None:
    async def look() -> bool:
        found = await operation.read_operation(stage.database, number, workspace="default")
        return found.state == state

    await eventually(look, within_seconds=_WAIT_SECONDS)


async def _said(stage: Stage, fingerprint: str) -> None:
    """Have people say something: of issues, of what they look at often, of who may do what."""
    (feed,) = await _rows(stage, "select fingerprint from grns.issues where error_class = 'KeyError'")
    await issue.change_issue(
        stage.database, workspace="default", fingerprint=feed["fingerprint"], actor=BO, state="acknowledged",
        owner="bo", note="Atom feeds: the parser that knows them is in review.",
    )  # fmt: skip
    for name, text in (("nightly", "trace:nightly-*"), ("declined", "error:CardDeclined age:<1d")):
        await saved_filter.save(stage.database, workspace="default", name=name, wanted=parse(text), actor=ANN)
    for workspace in ("acme", "staging"):
        await create_workspace(stage.database, workspace, actor=ANN)
    for name, scopes, expires in (("ci", ["submit", "read"], 30 * 86_400.0), ("grafana", ["read"], None)):
        await create_key(
            stage.database, workspace="default", name=name, scopes=scopes, expires_seconds=expires, actor=ANN
        )
    # Names of machines, of which this one's is nobody's business.
    await _rows(stage, "update grns.workers set host = agent_type || '-1' returning 1")


async def _past(stage: Stage) -> None:
    """Write down what happened before, as the counter would have."""
    ((last,),) = await _rows(stage, "select max(seq) from grns.events")

    async def is_counted() -> bool:
        counted = "select low >= $1 or counted @> $1::bigint from grns.count_cursor"
        return bool((await _rows(stage, counted, last))[0][0])

    await eventually(is_counted, within_seconds=_WAIT_SECONDS)
    await _rows(stage, "delete from grns.task_minutes where workspace = 'default' returning 1")
    await _rows(stage, _MINUTES)
    await _rows(stage, _HOURS)
    await _rows(stage, _TOTALS)
    await _rows(stage, _WHEN)


async def _rows(stage: Stage, statement: str, *arguments: Any) -> list[Any]:
    async with stage.database.connection() as connection:
        return list(await connection.fetch(statement, *arguments))


_MINUTES = """
    insert into grns.task_minutes
    select 'default', date_trunc('minute', now()) - g.ago * interval '1 minute', 'fetch_page',
        w.come, w.come, w.good, (3 * w.wave)::bigint, w.bad, 0, 2 * w.bad, (g.ago % 13 = 0)::int, 0, 0,
        w.come, (w.come * (90 + w.bad * 6 + 40 * w.wave))::bigint,
        w.come, (w.come * (240 + 90 * w.wave))::bigint
    from generate_series(-5, 59) as g (ago)
    cross join lateral (
        select w.wave, w.come, w.bad, w.come - w.bad as good
        from (
            select w.wave, (900 + 420 * w.wave)::bigint as come,
                (case when g.ago between 9 and 27 then 60 * sin((27 - g.ago) / 6.0) + 12 else 1 end)::bigint
                    as bad
            from (select 0.5 + 0.35 * sin(g.ago / 8.0) + 0.15 * sin(g.ago * 1.9) as wave) w
        ) w
    ) w
    returning 1
"""
_HOURS = """
    insert into grns.issue_hours
    select i.workspace, i.fingerprint, date_trunc('hour', now()) - g.ago * interval '1 hour',
        greatest(1, i.total * (0.4 + 0.3 * sin(g.ago / 2.0 + ascii(i.error_class))))::bigint
    from grns.issues i
    cross join generate_series(1, 23) as g (ago)
    where i.workspace = 'default' and (ascii(i.error_class) % 2 = 0 or g.ago < 6)
    on conflict do nothing
    returning 1
"""
_TOTALS = """
    update grns.issues i
    set total = h.total, first_seen = h.first + interval '17 minutes'
    from (
        select h.workspace, h.fingerprint, sum(h.count) as total, min(h.hour) as first
        from grns.issue_hours h group by 1, 2
    ) h
    where h.workspace = i.workspace and h.fingerprint = i.fingerprint
    returning 1
"""
# What has ended did so in the last half hour, in the order in which it did.
_WHEN = """
    with ended as (
        select t.id, t.fingerprint,
            interval '1 second' * (90 + 1500 * (1 - percent_rank() over (order by t.id))) as ago
        from grns.tasks t
        where t.workspace = 'default' and t.status in ('succeeded', 'failed', 'dead')
    ),
    moved as (
        update grns.tasks t
        set created_at = t.created_at - e.ago, updated_at = t.updated_at - e.ago,
            started_at = t.started_at - e.ago, finished_at = t.finished_at - e.ago
        from ended e
        where e.id = t.id
    ),
    told as (
        update grns.events v set created_at = v.created_at - e.ago from ended e where e.id = v.task_id
    )
    update grns.issues i
    set last_seen = i.last_seen - (
        select min(e.ago) from ended e where e.fingerprint = i.fingerprint
    )
    where exists (select from ended e where e.fingerprint = i.fingerprint)
    returning 1
"""
