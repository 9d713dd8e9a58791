"""The workers by name, tasks that only some of them may run, and what must be true of who runs them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from grns.model.submission import route_to
from grns.model.task import STATUS_AFTER
from grns.postgres.database import Database
from grns.tasks.agents import Agents
from tests.chaos import journal
from tests.chaos.http_worker import AGENT, POOL
from tests.chaos.post import CREW

MOST_OVER_HTTP = 8
"""Tasks at a time of the agent over HTTP, which asks for more."""
_MANY = 1000
_ROUTED = 0.2


@dataclass(frozen=True)
class Named:
    """An agent as it is registered, and the seat of its process."""

    name: str
    seat: str
    pool: str
    capabilities: tuple[str, ...] = ()
    most: int = _MANY

    def may_run(self, route: str) -> bool:
        """Say whether a task of its pool with this route is for it."""
        kind, _, rest = route.partition(":")
        return not route or (
            rest == self.name if kind == "a" else set(rest.split(",")) <= {*self.capabilities}
        )


AGENTS = (
    Named("ada", "worker-1", "worker", ("sums", "words")),
    Named("bob", "worker-2", "worker", ("words",)),
    Named("cleo", "scout-1", "scout", ("words",)),
    Named(AGENT, "http-worker-1", POOL, ("sums",), MOST_OVER_HTTP),
)
BY_NAME = {one.name: one for one in AGENTS}
BY_SEAT = {one.seat: one for one in AGENTS}


def draw_route(pool: str, chance: random.Random) -> dict[str, Any]:
    """Return the fields that say which agents may run a task of a pool; mostly none."""
    if chance.random() > _ROUTED:
        return {}
    agent = chance.choice([one for one in AGENTS if one.pool == pool])
    if chance.random() < 0.5:
        return {"target_agent": agent.name}
    return {
        "required_capabilities": chance.sample(agent.capabilities, chance.randint(1, len(agent.capabilities)))
    }


def route_of(wanted: Mapping[str, Any]) -> str:
    """Return the route of a submission."""
    return route_to(wanted.get("target_agent"), wanted.get("required_capabilities"))


async def put_agents(url: str) -> None:
    """Register all of them, and the crew that has nothing but mail."""
    database = Database(url, name="agents", size=1)
    async with database.opened():
        agents = Agents(database, "default", "storm")
        for one in AGENTS:
            await agents.put(
                one.name, pool=one.pool, capabilities=list(one.capabilities), max_concurrent_tasks=one.most
            )
        for name in CREW:
            await agents.put(name, pool="crew")


class Logged(Protocol):
    """An event of a task, as the checker has it."""

    kind: str
    agent: str | None
    seq: int


@dataclass(slots=True)
class Routed:
    """Who ran what, as the handlers wrote it down, held against the routes and the log."""

    ran: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lives: dict[str, str] = field(default_factory=dict)

    def judge(
        self, directory: Path, tasks: Mapping[str, Mapping[str, Any]], log: Mapping[str, Sequence[Logged]]
    ) -> Iterator[str]:
        """Return what is wrong."""
        for note in journal.read(directory, "effects-*.jsonl"):
            if (name := note.get("named")) is not None:
                self.ran[note["task"]].add(name)
                self.lives[note["agent"]] = name
        for task_id, names in self.ran.items():
            route = tasks[task_id].get("route", "") if task_id in tasks else ""
            for name in names:
                if not BY_NAME[name].may_run(route):
                    yield f"{task_id} is for {route}, and {name} ran it"
        yield from self._judge_room(log)

    def _judge_room(self, log: Mapping[str, Sequence[Logged]]) -> Iterator[str]:
        """The claims of an agent over HTTP follow one another: each has counted what is open."""
        events = sorted(
            ((event.seq, task_id, event) for task_id, its in log.items() for event in its),
            key=lambda one: one[0],
        )
        has: dict[str, set[str]] = defaultdict(set)
        for _, task_id, event in events:
            if event.kind == "evt.task.claimed":
                name = self.lives.get(event.agent or "", "")
                if name == AGENT:
                    has[name].add(task_id)
                    if len(has[name]) > MOST_OVER_HTTP:
                        yield f"{name} has {len(has[name])} tasks at seq {event.seq}, the last is {task_id}"
            elif STATUS_AFTER.get(event.kind) not in (None, "running"):
                for open_tasks in has.values():
                    open_tasks.discard(task_id)
