"""Tasks under limits: how many pass in a second, and how soon one starts on an idle system."""

from __future__ import annotations

from tests.bench.figure import COUNT, MILLISECONDS, TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.latency import submit_all
from tests.bench.size import Sizes
from tests.bench.whole_way import begin, note_cpu, passed
from tests.support.harness import quantile

_TENANTS, _EACH, _MOST = 100, 20, 1000
_TIMES = "select id, result::text::float8 as started_at from grns.tasks where id = any($1)"


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round: tasks of 100 tenants, 20 of each and 1,000 in all at once; then one by one."""
    async with ground.stage() as stage:
        await stage.client.limits.put("tenant", pool="worker", key="tenant", max=_EACH)
        await stage.client.limits.put("all", pool="worker", max=_MOST)
        await begin(stage, sizes.warm)
        passage = await passed(stage, sizes.rows, lambda number: {"tenant": f"t{number % _TENANTS}"})
        figures.note("limited.rate", passage.finished_rate, TASKS)
        figures.note("limited.batch", passage.pace.batch, COUNT)
        note_cpu(figures, "limited", passage.cpu_seconds, sizes.rows)
        began = await submit_all(stage, sizes.samples, [])
        rows = await stage.connection.fetch(_TIMES, list(began))
    seconds = [row["started_at"] - began[row["id"]] for row in rows]
    figures.note("limited.start.p50", 1000 * quantile(seconds, 0.50), MILLISECONDS)
    figures.note("limited.start.p99", 1000 * quantile(seconds, 0.99), MILLISECONDS)
