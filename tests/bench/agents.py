"""Agents: what the heartbeats of many cost, and how soon a mailbox answers among a million messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from grns.model.agent import AgentHeartbeat, NamedHeartbeat
from grns.tasks.agents import MOST_AGENTS, Heartbeats
from tests.bench.figure import MICROSECONDS, MILLISECONDS, SHARE, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import Stage
from tests.support.harness import quantile

AGENTS = MOST_AGENTS
INTERVAL_SECONDS = 10.0
_AT_ONCE = 500
_SETTLE_SECONDS = 3.0
_MAILBOXES = 1000
_REGISTER = """
    insert into grns.agents (workspace, name, agent_type, heartbeat_interval_seconds, stale_threshold_seconds)
    select 'default', 'agent-' || n, 'coder', $2::float8, 3 * $2::float8
    from generate_series(1, $1::integer) as n
"""
_FILL = """
    insert into grns.mail (id, workspace, to_agent, from_agent, type, payload, expires_at, acked_at)
    select gen_random_uuid(), 'default', 'agent-' || (1 + n % $2::integer), 'boss', 'hello',
        '{"text": "hello"}', now() + interval '7 days', case when n / $2::integer % 100 > 0 then now() end
    from generate_series(1, $1::integer) as n
"""


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Let all agents of a workspace send heartbeats, some at a time; then read mailboxes, one by one.

    What heartbeats cost is the CPU of all processes and servers, and of this one, which sends them in
    batches, without what they took before. One message in a hundred is not acknowledged.
    """
    async with ground.stage() as stage:
        stage.start("server")
        await stage.connection.execute(_REGISTER, AGENTS, INTERVAL_SECONDS)
        await stage.connection.execute("vacuum analyze grns.agents")
        await asyncio.sleep(_SETTLE_SECONDS)
        idle = await _cpu_share(stage, sizes.window_seconds)
        heartbeats = Heartbeats(stage.database)
        await _beat_for(heartbeats, INTERVAL_SECONDS)  # all begin their lives
        before, began = _cpu_seconds(stage), time.monotonic()
        beats = await _beat_for(heartbeats, max(sizes.window_seconds, INTERVAL_SECONDS))
        took = time.monotonic() - began
        share = (_cpu_seconds(stage) - before) / took - idle
        figures.note("agents.cpu", max(0.0, share), SHARE)
        figures.note("agents.cpu_of_one", 1e6 * share * took / beats, MICROSECONDS)
        await stage.connection.execute(_FILL, sizes.mail, _MAILBOXES)
        await stage.connection.execute("vacuum analyze grns.mail")
        figures.note("mail.p95", 1000 * quantile(await _poll(stage, sizes.samples), 0.95), MILLISECONDS)


async def _beat_for(heartbeats: Heartbeats, seconds: float) -> int:
    """Send the heartbeats of all agents evenly over an interval, in batches; return how many."""
    said = AgentHeartbeat(status="working", progress_percent=50, current_step="tests", memory_mb=300)
    names = [f"agent-{number}" for number in range(1, AGENTS + 1)]
    batches = [_named(names[start : start + _AT_ONCE], said) for start in range(0, AGENTS, _AT_ONCE)]
    pause, until, sent = INTERVAL_SECONDS / len(batches), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for batch in batches:
            began = time.monotonic()
            sent += len(await heartbeats.beat_many("default", batch))
            await asyncio.sleep(max(0.0, pause - (time.monotonic() - began)))
            if time.monotonic() >= until:
                break
    return sent


def _named(names: Sequence[str], said: AgentHeartbeat) -> list[NamedHeartbeat]:
    fields = said.model_dump(exclude_none=True)
    return [NamedHeartbeat(name=name, **fields) for name in names]


async def _poll(stage: Stage, samples: int) -> list[float]:
    """Read and acknowledge the oldest messages of many mailboxes, and say how long each reading took."""
    seconds = []
    for number in range(samples):
        name = f"agent-{1 + number % _MAILBOXES}"
        began = time.monotonic()
        found = await stage.client.mail.poll(name, limit=20)
        seconds.append(time.monotonic() - began)
        await stage.client.mail.ack(name, found)
    return seconds


async def _cpu_share(stage: Stage, seconds: float) -> float:
    before = _cpu_seconds(stage)
    await asyncio.sleep(seconds)
    return (_cpu_seconds(stage) - before) / seconds


def _cpu_seconds(stage: Stage) -> float:
    return sum(used.cpu_seconds for used in stage.usage().values())
