"""Why no agent runs a task that only some of them may run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grns.diagnose.explain.cause import Cause
from grns.diagnose.explain.phrases import counted
from grns.diagnose.explain.snapshot import AgentSeen, TaskSnapshot

_MOST_NAMED = 3


def routed(seen: TaskSnapshot) -> Iterator[Cause]:
    """Yield what is in the way of all agents that may run a queued task."""
    task, able = seen.task, [one for one in seen.agents if not one.missing]
    other = f"grns task edit {task.id} --any-worker"
    if task.target_agent is not None:
        whose, name = f"it is for the agent {task.target_agent}", task.target_agent
        if not able:
            yield Cause("agent_away", f"{whose}, which is not registered", ("grns agent list", other))
            return
        if able[0].agent_type != task.agent_type:
            pool = able[0].agent_type
            yield Cause(
                "agent_away", f"{whose}, which is of the pool {pool}", (f"grns agent show {name}", other)
            )
            return
    else:
        whose = f"it is for agents that can do {' and '.join(task.required_capabilities or ())}"
        if not able:
            yield Cause("no_capable_agent", f"{whose}, and {_lacking(seen)}", _listing(seen, other))
            return
    there = [one for one in able if one.is_there]
    working = [one for one in there if one.order is None]
    if not there:
        yield Cause("agent_away", f"{whose}: {_named(able)}", _listing(seen, other))
    elif not working:
        told = ", ".join(f"{one.name} is told to {one.order}" for one in there[:_MOST_NAMED])
        yield Cause("agent_draining", f"{whose}: {told}", (f"grns agent resume {there[0].name}", other))
    elif all(one.room <= 0 for one in working):
        full = ", ".join(one.name for one in working[:_MOST_NAMED])
        has = "has as many tasks as it may" if len(working) == 1 else "have as many tasks as they may"
        yield Cause("agent_full", f"{whose}: {full} {has}", (f"grns agent tasks {working[0].name}", other))


def _listing(seen: TaskSnapshot, other: str) -> tuple[str, ...]:
    return (f"grns agent list --pool {seen.task.agent_type}", other)


def _named(agents: Sequence[AgentSeen]) -> str:
    shown = ", ".join(f"{one.name} is {one.health}" for one in agents[:_MOST_NAMED])
    return f"{shown}, and {len(agents) - _MOST_NAMED} more" if len(agents) > _MOST_NAMED else shown


def _lacking(seen: TaskSnapshot) -> str:
    if not seen.agents:
        return f"the pool {seen.task.agent_type} has no registered agent"
    lacking = ", ".join(f"{one.name} lacks {', '.join(one.missing)}" for one in seen.agents[:_MOST_NAMED])
    return f"no one of {counted(len(seen.agents), 'agent')} can: {lacking}"
