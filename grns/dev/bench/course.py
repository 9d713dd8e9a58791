"""The course of a run: what `grns admin bench` does, step by step."""

from __future__ import annotations

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.dev.bench import distance, place, rate
from grns.dev.bench.plan import Figures, Plan, Result
from grns.dev.bench.pool import AGENT_TYPE, NOOP
from grns.dev.bench.rate import Bench
from grns.dev.bench.show import BenchProgress
from grns.dev.bench.stage import BenchStage
from grns.errors import GrnsError
from grns.model.submission import submission
from grns.runtime.signals import end_on_signals
from grns.settings import Settings
from grns.tasks.submit import prepare


async def run(settings: Settings, plan: Plan) -> Result:
    """Measure on the servers of `settings`, and remove all that it took, also where it is interrupted.

    Raises `InvalidInputError` (a payload beyond the settings' limit, before anything is made),
    `UnavailableError`
    (a server does not answer, or refuses what is needed), `WaitTimeoutError` (nothing moves any more).
    """
    prepare(submission(task_type=NOOP, agent_type=AGENT_TYPE, payload=plan.payload), settings.payload_limits)
    end_on_signals()
    with BenchProgress() as show:
        async with place.made(settings, plan, show.say) as ours:
            show.say(f"working in {ours.directory.name}: a database and streams that are removed afterwards")
            with BenchStage(ours) as stage:
                try:
                    return await _measure(ours.settings, plan, stage, show)
                except GrnsError:
                    for name, text in stage.logs().items():
                        show.say(f"--- the end of the log of {name}\n{text}")
                    raise


async def _measure(settings: Settings, plan: Plan, stage: BenchStage, show: BenchProgress) -> Result:
    app = App(settings)
    async with app.connections("bench") as (database, transport):
        found = await distance.look(database, transport, show)
        client = tools.client(app, database, transport, app.handlers_database())
        bench = Bench(plan, client, database, transport, stage, show)
        figures = Figures(
            in_bulk=await rate.in_bulk(bench),
            one_by_one=await rate.one_by_one(bench),
            drain=await rate.drain(bench),
            whole_way=await rate.whole_way(bench),
            start=await rate.start(bench),
        )
    return Result(plan, found, figures)
