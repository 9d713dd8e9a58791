"""What is asked of the API: each of its routes that looks, with filters that people use, near and deep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from grns.api.app import ROUTES
from grns.api.route import PREFIX
from tests.bench.interfaces.furniture import Things

_LONG = 1000

# Of lists of tasks. Those of the second kind may be answered in part, after so many rows: no index has what
# they ask for, and what they look through is not rare.
FILTERS = (
    "", "status:queued", "status:running", "status:retry_wait", "status:waiting", "status:succeeded",
    "status:failed", "status:dead", "status:cancelled", "status:dead,failed", "type:fetch_page",
    "type:fetch_*", "-type:fetch_page",
    "pool:mailer", "priority:0", "status:queued pool:crawler", "status:queued priority:<2",
    "status:queued type:send_mail", "status:dead type:send_mail", "status:dead pool:billing priority:0",
    "status:dead attempt:>2", "status:dead age:<1d", "status:dead,failed error:Timeout*",
    'status:dead error:"*refused*"', "status:retry_wait type:parse_page", "status:running pool:crawler",
    "worker:crawler-default-*", "age:<1h", "status:succeeded age:>1d", "attempt:>1", "key:order-5,order-10",
    "discarded:yes", "status:cancelled discarded:yes", "status:dead payload.order.region:eu",
    "tag:relaunch", "tag:site:3 status:dead", "creator:team-3", "text:import", 'text:"shop 17"',
    "text:relaunch status:dead",
)  # fmt: skip
PARTIAL = (
    "error:MemoryError", 'error:"*twice*"', "payload.order.region:eu", "payload.order.id:17",
    'payload.url:"https://shop-17.example/*"', "status:succeeded payload.order.id:17", "attempt:>9",
    "status:dead payload.order.id:17", "status:dead error:NobodySaidThis*", "type:nothing",
)  # fmt: skip
# What is done to everything that a filter finds is counted first.
_COUNTED = (
    ("redrive", "status:dead"), ("redrive", 'status:dead,failed error:"*refused*"'),
    ("redrive", "status:dead payload.order.id:17"), ("discard", "type:send_mail"),
    ("cancel", "status:queued"), ("cancel", "type:fetch_page"),
)  # fmt: skip
COUNTING = "create_operation"
# Nobody waits for their end.
STREAMS = frozenset({"stream_task", "web_follow_events", "web_stream_task"})
# The routes that change nothing, and the one that says beforehand how much it would.
LOOKING = (*(route.name for route in ROUTES if route.method == "GET" and route.name not in STREAMS), COUNTING)


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that is asked, by the operation that answers it; several paths take their turn.

    Of one that `is_deep` the page begins so far behind the first. What `may_be_partial` may say that it has
    not looked at all. What `is_of_all` is asked with a key of all workspaces. With a `body` it is a POST.
    """

    route: str
    what: str
    paths: Sequence[str]
    is_deep: bool = False
    may_be_partial: bool = False
    is_of_all: bool = False
    body: Mapping[str, object] | None = None

    @property
    def name(self) -> str:
        """What its figures are called."""
        return f"{self.route}: {self.what}" if self.what else self.route


def questions(things: Things) -> list[Question]:
    """Return all that is asked of the API."""
    found = [
        *_tasks(things),
        *_one_task(things),
        *_dead(things),
        *_issues(things),
        *_counts(things),
        *_log(things),
        *_rest(things),
    ]
    return [*found, *(_deep(one) for one in found if _goes_on(one))]


def missing(found: Sequence[Question]) -> set[str]:
    """Return the routes that look and that nothing is asked of."""
    return set(LOOKING) - {one.route for one in found}


# Whose rows go on behind a cursor, and are many enough for that here.
_LISTS = frozenset({
    "list_tasks", "list_dead_letters", "list_issues", "list_issue_tasks", "list_events", "list_operations",
    "list_deliveries",
})  # fmt: skip


def _goes_on(one: Question) -> bool:
    return one.route in _LISTS and "limit" not in one.what and not one.is_of_all


def _deep(one: Question) -> Question:
    return Question(one.route, f"{one.what}, deep".strip(", "), one.paths[:1], True, one.may_be_partial)


def _path(path: str, query: Mapping[str, object] | None = None) -> str:
    return PREFIX + path + (f"?{urlencode(query, doseq=True)}" if query else "")


def _tasks(things: Things) -> Iterator[Question]:
    for text in FILTERS:
        yield Question("list_tasks", text or "all", [_path("/tasks", {"filter": text})])
    for text in (*PARTIAL, f"trace:{things.trace}"):
        path = _path("/tasks", {"filter": text})
        yield Question("list_tasks", _without_ids(text), [path], may_be_partial=True)
    for kind, fingerprint in (("common", things.biggest), ("rare", things.smallest)):
        path = _path("/tasks", {"filter": f"status:dead fingerprint:{fingerprint}"})
        yield Question("list_tasks", f"status:dead fingerprint:({kind})", [path])
    ids = [_path("/tasks", {"filter": f"id:{one}"}) for one in things.some]
    yield Question("list_tasks", "id:(one)", ids)
    yield Question("list_tasks", "id:(prefix)", [_path("/tasks", {"filter": things.some[0][:9]})])
    saved = [_path("/tasks", {"saved": name}) for name in things.filters]
    yield Question("list_tasks", "a saved filter", saved)
    for text in ("", "status:dead", "status:queued"):
        path = _path("/tasks", {"filter": text, "limit": _LONG})
        yield Question("list_tasks", f"{text or 'all'}, limit {_LONG}", [path])


def _without_ids(text: str) -> str:
    return "trace:(one)" if text.startswith("trace:") else text


def _one_task(things: Things) -> Iterator[Question]:
    for state, ids in things.tasks.items():
        yield Question("read_task", state, [_path(f"/tasks/{one}") for one in ids])
        yield Question("explain_task", state, [_path(f"/tasks/{one}/explain") for one in ids])
    yield Question("list_task_events", "", [_path(f"/tasks/{one}/events") for one in things.some])
    yield Question("list_task_steps", "", [_path(f"/tasks/{one}/steps") for one in things.some])
    yield Question("read_log", "", [_path(f"/tasks/{one}/logs") for one in things.some])
    yield Question("list_usage", "", [_path(f"/tasks/{one}/usage") for one in things.some])
    yield Question("list_attempts", "", [_path(f"/tasks/{one}/attempts") for one in things.some])


def _dead(things: Things) -> Iterator[Question]:
    for query in (
        {}, {"what": "task"}, {"what": "message"}, {"filter": "type:send_mail"}, {"filter": "age:<1d"},
        {"filter": 'error:"*refused*"'},
    ):  # fmt: skip
        what = " ".join(query.values()) or "all"
        yield Question("list_dead_letters", what, [_path("/dead-letters", query)])
    yield Question("export_dead_letters", "limit 100", [_path("/dead-letters/export", {"limit": "100"})])
    yield Question("read_message", "", [_path(f"/messages/{one}") for one in things.messages])


def _issues(things: Things) -> Iterator[Question]:
    yield Question("list_issues", "all", [_path("/issues")])
    yield Question("list_issues", "new, regressed", [_path("/issues", {"state": ["new", "regressed"]})])
    yield Question("list_issues", f"limit {_LONG}", [_path("/issues", {"limit": _LONG})])
    yield Question("read_issue", "", [_path(f"/issues/{one}") for one in things.fingerprints])
    for what, fingerprints in (
        ("common", [things.biggest]), ("rare", [things.smallest]), ("each in turn", things.fingerprints),
    ):  # fmt: skip
        paths = [_path(f"/issues/{one}/tasks") for one in fingerprints]
        yield Question("list_issue_tasks", what, paths)


def _counts(things: Things) -> Iterator[Question]:
    asked = [*_COUNTED, ("redrive", f"status:dead fingerprint:{things.biggest}")]
    for action, text in asked:
        said = text.replace(things.biggest, "(common)") if "fingerprint" in text else text
        body = {"action": action, "filter": text, "dry_run": True}
        yield Question(COUNTING, f"dry run, {action} {said}", [_path("/operations")], body=body)
        yield Question("count_found", said, [_path("/tasks/count", {"filter": text})])
    yield Question("count_tasks", "", [_path("/counts")])


def _log(things: Things) -> Iterator[Question]:
    for query in (
        {}, {"order": "oldest"}, {"kind": "evt.task.dead"}, {"kind": "evt.task.*"}, {"kind": "evt.pool.*"},
        {"kind": "dlq.task.*", "order": "oldest"},
    ):  # fmt: skip
        yield Question(
            "list_events", " ".join(query.values()) or "all", [_path("/events", query)], may_be_partial=True
        )
    paths = [_path("/events", {"task_id": one}) for one in things.some]
    yield Question("list_events", "of a task", paths, may_be_partial=True)
    yield Question("list_minutes", "an hour", [_path("/minutes")])
    yield Question("list_minutes", "of a type", [_path("/minutes", {"task_type": "send_mail"})])


def _rest(things: Things) -> Iterator[Question]:
    yield Question("list_operations", "", [_path("/operations")])
    yield Question("read_operation", "", [_path(f"/operations/{one}") for one in things.operations])
    yield Question("list_pools", "", [_path("/pools")])
    pools = [_path(f"/pools/{one}/follow-ups") for one in things.agent_types]
    yield Question("list_pool_follow_ups", "", pools)
    yield Question("list_workers", "", [_path("/workers")])
    yield Question("read_queue_status", "", [_path("/queue/status")])
    yield Question("list_filters", "", [_path("/filters")])
    yield Question("read_filter", "", [_path(f"/filters/{one}") for one in things.filters])
    yield Question("list_terms", "", [_path("/terms", {"beginning": "status:d"})])
    yield Question("list_workflows", "", [_path("/workflows"), _path("/workflows", {"status": "running"})])
    yield Question("read_workflow", "", [_path(f"/workflows/{things.workflow}")])
    yield Question("list_workflow_tasks", "", [_path(f"/workflows/{things.workflow}/tasks")])
    yield Question("list_schedules", "", [_path("/schedules")])
    yield Question("read_schedule", "", [_path(f"/schedules/{things.schedule}")])
    yield Question("next_times", "", [_path(f"/schedules/{things.schedule}/next")])
    yield Question("list_schedule_runs", "", [_path(f"/schedules/{things.schedule}/runs")])
    yield Question("list_limits", "", [_path("/limits")])
    yield Question("read_limit", "", [_path(f"/limits/{things.limit}")])
    yield Question("list_limit_keys", "", [_path(f"/limits/{things.limit}/keys")])
    yield Question("list_questions", "", [_path("/questions")])
    yield Question("list_agents", "", [_path("/agents")])
    for name, path in (("read_agent", ""), ("read_agent_health", "/health"), ("list_agent_tasks", "/tasks")):
        yield Question(name, "", [_path(f"/agents/{things.agent}{path}")])
    yield Question("list_mail", "", [_path("/mail", {"to": things.agent})])
    yield Question("list_coordination", "", [_path("/coordinator/logs")], may_be_partial=True)
    yield Question("list_blobs", "", [_path("/blobs")])
    yield Question("read_blob", "", [_path(f"/blobs/{things.blob}")])
    yield Question("sum_usage", "", [_path("/usage", {"by": ["day", "model"]})])
    yield Question("list_budgets", "", [_path("/budgets")])
    yield Question("read_budget", "", [_path("/budgets/mail")])
    yield Question("list_published", "", [_path("/task-types")])
    yield Question("read_own_key", "", [_path("/me")])
    yield Question("read_question", "", [_path(f"/questions/{things.question}")])
    yield Question("list_webhooks", "", [_path("/webhooks")])
    yield Question("read_webhook", "", [_path(f"/webhooks/{things.webhook}")])
    deliveries = f"/webhooks/{things.webhook}/deliveries"
    yield Question("list_deliveries", "all", [_path(deliveries)])
    yield Question("list_deliveries", "failed", [_path(deliveries, {"state": "failed"})])
    yield Question("read_delivery", "", [_path(f"{deliveries}/{one}") for one in things.deliveries])
    yield Question("list_keys", "", [_path("/keys")])
    yield Question("read_key", "", [_path(f"/keys/{one}") for one in things.keys])
    yield Question("list_workspaces", "", [_path("/workspaces")])
    for route, path in (
        ("is_alive", "/livez"), ("is_ready", "/readyz"), ("read_openapi", f"{PREFIX}/openapi.json"),
    ):  # fmt: skip
        yield Question(route, "", [path])
    for route, path in (
        ("read_metrics", "/metrics"), ("examine", _path("/doctor")),
        ("read_coordinator_status", _path("/coordinator/status")),
        ("list_tasks", _path("/tasks")), ("count_tasks", _path("/counts")),
        ("list_keys", _path("/keys", {"all_workspaces": "true"})), ("list_workspaces", _path("/workspaces")),
    ):  # fmt: skip
        yield Question(route, "with a key of all", [path], is_of_all=True)
