"""`grns admin bench`, step by step."""

from __future__ import annotations

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.dev.bench import measure, workspace
from grns.dev.bench.measure import Bench
from grns.dev.bench.plan import Figures, Plan, Result
from grns.dev.bench.pool import AGENT_TYPE, NOOP
from grns.dev.bench.workspace import BenchProcesses, BenchProgress
from grns.errors import GrnsError
from grns.model.submission import submission
from grns.runtime.signals import end_on_signals
from grns.settings import Settings
from grns.tasks.submit import prepare


async def run(settings: Settings, plan: Plan) -> Result:
    """Measure on the servers of `settings`, and remove the workspace, also after an interruption.

    Raises:
        InvalidInputError: the payload is larger than the settings allow; nothing was created.
        UnavailableError: a server does not answer, or refuses a request.
        WaitTimeoutError: there was no progress for a minute.
    """
    prepare(submission(task_type=NOOP, agent_type=AGENT_TYPE, payload=plan.payload), settings.payload_limits)
    end_on_signals()
    with BenchProgress() as show:
        async with workspace.temporary(settings, plan, show.say) as temporary:
            show.say(
                f"working in {temporary.directory.name}: a database and streams that are removed afterwards"
            )
            with BenchProcesses(temporary) as processes:
                try:
                    return await _measure(temporary.settings, plan, processes, show)
                except GrnsError:
                    for name, text in processes.logs().items():
                        show.say(f"--- last lines of the log of {name}\n{text}")
                    raise


async def _measure(settings: Settings, plan: Plan, processes: BenchProcesses, show: BenchProgress) -> Result:
    app = App(settings)
    async with app.connections("bench") as (database, transport):
        latencies = await measure.latencies(database, transport, show)
        client = tools.client(app, database, transport, app.handlers_database())
        bench = Bench(plan, client, database, transport, processes, show)
        figures = Figures(
            in_bulk=await measure.in_bulk(bench),
            one_by_one=await measure.one_by_one(bench),
            drain=await measure.drain(bench),
            whole_way=await measure.end_to_end(bench),
            start=await measure.start(bench),
        )
    return Result(plan, latencies, figures)
