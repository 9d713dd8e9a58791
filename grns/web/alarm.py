"""What is wrong at a glance: pools that nobody works in, what is paused, workers that have gone silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grns.web.formatting import counted, lasted

_OLD_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing, in one sentence, and the page where more of it stands. `bad`: something does not go on."""

    severity: Literal["bad", "note"]
    text: str
    path: str
    filter: str | None = None


def of_pools(pools: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return what is wrong with pools."""
    found = []
    for pool in pools:
        name, waiting = pool["agent_type"], _waiting(pool)
        if any(pause["task_type"] is None for pause in pool["pauses"]):
            found.append(Alarm("note", f"Pool {name} is paused: {waiting}.", f"/pools/{name}"))
        elif pool["queued"] and not pool["workers"]:
            found.append(Alarm("bad", f"No worker serves pool {name}: {waiting}.", f"/pools/{name}"))
        elif (pool["oldest_seconds"] or 0.0) > _OLD_SECONDS:
            age = lasted(pool["oldest_seconds"])
            found.append(
                Alarm("note", f"Pool {name} is behind: its oldest task has waited {age}.", f"/pools/{name}")
            )
        found += [
            Alarm("note", f"Task type {pause['task_type']} of pool {name} is paused.", f"/pools/{name}")
            for pause in pool["pauses"]
            if pause["task_type"] is not None
        ]
    return found


def of_workers(workers: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return what is wrong with workers."""
    silent = [worker for worker in workers if not worker["is_alive"]]
    if not silent:
        return []
    have = "has" if len(silent) == 1 else "have"
    said = f"{counted(len(silent), 'worker')} {have} gone silent without a farewell."
    return [Alarm("note", said, "/workers")]


def of_types(queued: Sequence[Mapping[str, Any]], workers: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return which types are queued that no live worker of their pool has a handler for."""
    served: dict[str, set[str]] = {}
    for worker in workers:
        if worker["is_alive"]:
            served.setdefault(worker["agent_type"], set()).update(worker["task_types"])
    unserved = sorted(
        {
            (task["agent_type"], task["task_type"])
            for task in queued
            if task["agent_type"] in served and task["task_type"] not in served[task["agent_type"]]
        }
    )
    return [
        Alarm(
            "bad",
            f"No worker of pool {pool} has a handler for {kind}.",
            "/tasks",
            f"status:queued type:{kind}",
        )
        for pool, kind in unserved
    ]


def _waiting(pool: Mapping[str, Any]) -> str:
    return f"{counted(pool['queued'], 'task')}{' or more' if pool['has_more'] else ''} queued"
