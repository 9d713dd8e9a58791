"""Makes the dashboards out of the metrics' registry: a query can only name what is declared there.

python infra/grafana/generate.py           writes infra/grafana/dashboards/*.json
python infra/grafana/generate.py --rules   prints all queries as rules, for `promtool check rules`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from panel import RATE, Dashboard, Query, chart, document, latest, number, processes, quantiles, rate, share

from grns.telemetry import metrics as r

PLACE = Path(__file__).parent / "dashboards"

_TYPE = ("task_type",)
_SPACE = ("workspace",)

OVERVIEW = Dashboard(
    "grns-overview",
    "grns: overview",
    [
        number(
            "Dead or failed, last hour",
            Query(f"sum(increase({r.DEAD_LETTERS.name}[1h]))", "tasks"),
            of=r.DEAD_LETTERS,
            unit="short",
        ),
        number("Oldest queued task", latest(r.QUEUE_OLDEST), of=r.QUEUE_OLDEST),
        number("Invariants violated", latest(r.VIOLATIONS), of=r.VIOLATIONS),
        number("Log not published since", latest(r.UNPUBLISHED_OLDEST), of=r.UNPUBLISHED_OLDEST),
        chart(
            "Claimed and ended", rate(r.CLAIMS, legend="claimed"), rate(r.ATTEMPTS, "status"), of=r.ATTEMPTS
        ),
        chart("Tasks by state", latest(r.TASKS, "status"), of=r.TASKS),
        chart("Queued until claimed", *quantiles(r.QUEUE_WAIT), of=r.QUEUE_WAIT),
        chart("Created until ended", *quantiles(r.TASK), of=r.TASK),
        chart("Dead or failed", rate(r.DEAD_LETTERS, "status"), of=r.DEAD_LETTERS),
        chart(
            "Not served",
            latest(r.UNSERVED_OLDEST, "workspace", "agent_type", "task_type"),
            of=r.UNSERVED_OLDEST,
        ),
    ],
)

TASKS = Dashboard(
    "grns-tasks",
    "grns: tasks",
    [
        chart("Claims, by where they come from", rate(r.CLAIMS, "source", chosen=_TYPE), of=r.CLAIMS),
        chart(
            "Claims that succeed",
            share(r.CLAIMS, [r.CLAIMS, r.CLAIM_CONFLICTS], "succeed"),
            of=r.CLAIMS,
            unit="percentunit",
        ),
        chart("Commands that claimed nothing", rate(r.CLAIM_CONFLICTS, "reason"), of=r.CLAIM_CONFLICTS),
        chart("Attempts that ended", rate(r.ATTEMPTS, "task_type", "status", chosen=_TYPE), of=r.ATTEMPTS),
        chart("Queued until claimed", *quantiles(r.QUEUE_WAIT, chosen=_TYPE), of=r.QUEUE_WAIT),
        chart("In the handler", *quantiles(r.RUN, chosen=_TYPE), of=r.RUN),
        chart("Created until ended", *quantiles(r.TASK, chosen=_TYPE), of=r.TASK),
        chart("Retries, by class of error", rate(r.RETRIES, "error_class"), of=r.RETRIES),
        chart("Waiting for a retry", latest(r.TASKS, "workspace", status="retry_wait"), of=r.TASKS),
        chart("Bulk operations", rate(r.OPERATION_TASKS, "action", "outcome"), of=r.OPERATION_TASKS),
    ],
    [(r.CLAIMS, "task_type")],
)

POOLS = Dashboard(
    "grns-pools",
    "grns: pools and leases",
    [
        chart(
            "Oldest queued task, by pool and priority",
            latest(r.QUEUE_OLDEST, "workspace", "agent_type", "priority", chosen=_SPACE),
            of=r.QUEUE_OLDEST,
        ),
        chart("Workers", latest(r.WORKERS, "workspace", "agent_type", chosen=_SPACE), of=r.WORKERS),
        chart(
            "Slots, and how many are taken",
            latest(r.WORKER_SLOTS, "agent_type", chosen=_SPACE, legend="{{agent_type}} slots"),
            latest(r.WORKER_SLOTS_TAKEN, "agent_type", chosen=_SPACE, legend="{{agent_type}} taken"),
            of=r.WORKER_SLOTS,
        ),
        chart("Agents by health", latest(r.AGENTS, "agent_type", "health", chosen=_SPACE), of=r.AGENTS),
        chart("Paused", latest(r.POOL_PAUSED, "agent_type", "task_type"), of=r.POOL_PAUSED),
        chart("Leases that ran out", rate(r.LEASE_EXPIRATIONS, "status"), of=r.LEASE_EXPIRATIONS),
        chart(
            "Attempts that were ended because they stalled, or took longer than expected",
            rate(r.ATTEMPTS_STALLED, legend="stalled"),
            rate(r.ATTEMPTS_OVERDUE, legend="overdue"),
            of=r.ATTEMPTS_STALLED,
        ),
        chart("Chunks of output that were not sent", rate(r.OUTPUT_DROPPED), of=r.OUTPUT_DROPPED),
        chart("Leases lost by workers", rate(r.LEASES_LOST, "reason"), of=r.LEASES_LOST),
        chart("Renewals without an answer", rate(r.RENEW_FAILURES, legend="renewals"), of=r.RENEW_FAILURES),
        chart(
            "Not reaped, not queued",
            latest(r.LAPSED_OLDEST, legend="not reaped"),
            latest(r.DUE_OLDEST, legend="not queued"),
            latest(r.UNDECIDED_OLDEST, legend="not scheduled"),
            of=r.LAPSED_OLDEST,
        ),
        chart("Claimed from Postgres directly", rate(r.POLL_CLAIMS, legend="tasks"), of=r.POLL_CLAIMS),
        chart(
            "Queued because they were due, or admitted",
            rate(r.PROMOTIONS, legend="due"),
            rate(r.ADMISSIONS, legend="admitted by limits"),
            of=r.PROMOTIONS,
        ),
        chart(
            "Questions that no person has looked at",
            latest(r.UNSEEN_OLDEST, legend="oldest"),
            of=r.UNSEEN_OLDEST,
        ),
        chart("Schedules", rate(r.SCHEDULE_DECISIONS, "outcome"), of=r.SCHEDULE_DECISIONS),
        chart("Used of budgets", latest(r.BUDGET_USED, "workspace", "budget"), of=r.BUDGET_USED),
    ],
    [(r.QUEUE_OLDEST, "workspace")],
)

BUS = Dashboard(
    "grns-bus",
    "grns: log and bus",
    [
        chart("Published", rate(r.PUBLISHED, "kind"), of=r.PUBLISHED),
        chart(
            "Not published, not counted",
            latest(r.UNPUBLISHED_OLDEST, legend="not published"),
            latest(r.UNCOUNTED_OLDEST, legend="not counted"),
            latest(r.RELAY_LAG, legend="read by the relay"),
            latest(r.STATS_LAG, legend="counted late"),
            latest(r.UNFOLLOWED_OLDEST, legend="not followed"),
            latest(r.UNADMITTED_OLDEST, legend="not admitted"),
            of=r.UNPUBLISHED_OLDEST,
        ),
        chart(
            "On the way to the broker",
            latest(r.RELAY_IN_FLIGHT, legend="messages"),
            latest(r.RELAY_MISSING, legend="missing numbers"),
            of=r.RELAY_IN_FLIGHT,
        ),
        chart("Refused by the broker", rate(r.REFUSED, "kind", "code"), of=r.REFUSED),
        chart(
            "Waiting for a durable", latest(r.CONSUMER_PENDING, "stream", "consumer"), of=r.CONSUMER_PENDING
        ),
        chart(
            "Delivered and not acknowledged",
            latest(r.CONSUMER_UNACKNOWLEDGED, "stream", "consumer"),
            of=r.CONSUMER_UNACKNOWLEDGED,
        ),
        chart(
            "Delivered again", latest(r.CONSUMER_REDELIVERED, "stream", "consumer"), of=r.CONSUMER_REDELIVERED
        ),
        chart(
            "Messages refused by grns",
            rate(r.REJECTED, "reason"),
            rate(r.MESSAGES_EXPIRED, legend="deleted unread"),
            of=r.REJECTED,
        ),
        chart("Deliveries given back", rate(r.DEFERRED, "reason"), of=r.DEFERRED),
        chart("Asked for over the bus", rate(r.NATS_REQUESTS, "kind", "answer"), of=r.NATS_REQUESTS),
    ],
)

PROCESSES = Dashboard(
    "grns-processes",
    "grns: processes",
    [
        chart("Processes, by version", processes(r.BUILD, "version"), of=r.BUILD, unit="short"),
        chart("Rounds that failed", rate(r.TICK_FAILURES, "service"), of=r.TICK_FAILURES),
        chart("Invariants violated", latest(r.VIOLATIONS, "invariant"), of=r.VIOLATIONS),
        chart(
            "Age of the gauges",
            Query(f"time() - max by (metric) ({r.MEASURED_AT.name})", "{{metric}}"),
            of=r.MEASURED_AT,
            unit="s",
        ),
        chart(
            "Failovers and losses",
            rate(r.FAILOVERS, legend="failovers of Postgres"),
            rate(r.WAITS_REPAIRED, legend="waits repaired"),
            rate(r.BROKER_LOSSES, legend="losses of the broker"),
            rate(r.OUT_OF_ROOM, legend="refusals for want of storage"),
            of=r.FAILOVERS,
        ),
        chart("Rows counted", rate(r.LOG_ROWS_COUNTED, legend="rows"), of=r.LOG_ROWS_COUNTED),
        chart("Webhooks: attempts", rate(r.WEBHOOK_ATTEMPTS, "outcome"), of=r.WEBHOOK_ATTEMPTS),
        chart("Webhooks: time of an attempt", *quantiles(r.WEBHOOK_SECONDS), of=r.WEBHOOK_SECONDS),
        chart("Webhooks: behind", latest(r.WEBHOOK_BEHIND, legend="rows"), of=r.WEBHOOK_BEHIND),
        chart("Webhooks disabled", rate(r.WEBHOOKS_DISABLED, "reason"), of=r.WEBHOOKS_DISABLED),
        chart("HTTP requests", rate(r.HTTP_REQUESTS, "operation", "status"), of=r.HTTP_REQUESTS),
        chart("Time of HTTP requests", *quantiles(r.HTTP_SECONDS), of=r.HTTP_SECONDS),
    ],
)

DASHBOARDS = (OVERVIEW, TASKS, POOLS, BUS, PROCESSES)


def texts() -> dict[str, str]:
    """Return the files by their names."""
    return {
        f"{dashboard.uid}.json": json.dumps(document(dashboard), indent=1, ensure_ascii=False) + "\n"
        for dashboard in DASHBOARDS
    }


def rules() -> str:
    """Return all queries as rules of their own: what reads rules can then read them."""
    found = [query.expr for dashboard in DASHBOARDS for panel in dashboard.panels for query in panel.queries]
    lines = [
        {"record": f"dashboard:query{place}", "expr": _filled_in(expr)}
        for place, expr in enumerate(dict.fromkeys(found))
    ]
    return json.dumps({"groups": [{"name": "dashboards", "rules": lines}]})  # JSON is YAML


def _filled_in(expr: str) -> str:
    """Return a query with what Grafana puts in for its variables."""
    return expr.replace(RATE, "5m").replace("$task_type", ".*").replace("$workspace", ".*")


def main() -> None:
    """Write the files, or print the rules."""
    if "--rules" in sys.argv[1:]:
        sys.stdout.write(rules())
        return
    PLACE.mkdir(exist_ok=True)
    for old in PLACE.glob("*.json"):
        old.unlink()
    for name, text in texts().items():
        (PLACE / name).write_text(text)


if __name__ == "__main__":
    main()
