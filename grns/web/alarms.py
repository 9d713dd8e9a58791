"""Alarms: pools without workers or paused, used-up budgets, silent workers, task types without a handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grns.model.text import lasted
from grns.web.filters import join, term
from grns.web.formatting import counted

_OLD_SECONDS = 300.0
_THEN = {
    "warn": "",
    "refuse": ": submissions are refused",
    "ask": ": its pools are paused until you allow more",
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """One problem in one sentence, and the page with its details. `bad`: tasks cannot run."""

    severity: Literal["bad", "note"]
    text: str
    path: str
    filter: str | None = None


def pool_alarms(pools: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return the alarms of pools."""
    alarms = []
    for pool in pools:
        name, path = pool["agent_type"], f"/pools/{pool['agent_type']}"
        queued = f"{counted(pool['queued'], 'task')}{' or more' if pool['has_more'] else ''} queued"
        if any(pause["task_type"] is None for pause in pool["pauses"]):
            alarms.append(Alarm("note", f"Pool {name} is paused: {queued}.", path))
        elif pool["queued"] and not pool["workers"]:
            alarms.append(Alarm("bad", f"No worker serves pool {name}: {queued}.", path))
        elif (pool["oldest_seconds"] or 0.0) > _OLD_SECONDS:
            age = lasted(pool["oldest_seconds"])
            alarms.append(Alarm("note", f"Pool {name} is behind: its oldest task has waited {age}.", path))
        alarms += [
            Alarm("note", f"Task type {pause['task_type']} of pool {name} is paused.", path)
            for pause in pool["pauses"]
            if pause["task_type"] is not None
        ]
    return alarms


def budget_alarms(budgets: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return an alarm for each budget that is used up."""
    return [
        Alarm(
            "note" if budget["action"] == "warn" else "bad",
            f"The budget {budget['name']} of this {budget['period']} is used up{_THEN[budget['action']]}.",
            "/usage",
        )
        for budget in budgets
        if budget["exceeded_since"] is not None
    ]


def worker_alarms(workers: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return an alarm if workers have stopped sending heartbeats."""
    silent = sum(not worker["is_alive"] for worker in workers)
    if not silent:
        return []
    have = "has" if silent == 1 else "have"
    return [Alarm("note", f"{counted(silent, 'worker')} {have} stopped without signing off.", "/workers")]


def handler_alarms(queued: Sequence[Mapping[str, Any]], workers: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return alarms for queued task types that no live worker of their pool has a handler for."""
    handled: dict[str, set[str]] = {}
    for worker in workers:
        if worker["is_alive"]:
            handled.setdefault(worker["agent_type"], set()).update(worker["task_types"])
    unhandled = sorted(
        {
            (task["agent_type"], task["task_type"])
            for task in queued
            if task["agent_type"] in handled and task["task_type"] not in handled[task["agent_type"]]
        }
    )
    return [
        Alarm(
            "bad",
            f"No worker of pool {pool} has a handler for {task_type}.",
            "/tasks",
            join(term("status", "queued"), term("type", task_type)),
        )
        for pool, task_type in unhandled
    ]
