"""Why a task is where it is, in a sentence, and what happened to it, step by step."""

from __future__ import annotations

from starlette.responses import Response

from grns.api.access import Reader
from grns.api.answer import Answer
from grns.api.route import Routes
from grns.api.task import TaskId
from grns.diagnose.explain.collect import Explainer
from grns.diagnose.explain.reason import Explanation

routes = Routes("tasks")


@routes.get("/tasks/{task_id}/explain", answers=Explanation)
async def explain_task(visit: Reader, task_id: TaskId) -> Response:
    """Say why a task is where it is, what helps, and what happened to it."""
    desk = visit.desk
    async with visit.reading() as database:
        explainer = Explainer(
            database=database,
            whole=desk.database,
            transport=desk.transport,
            workspace=visit.workspace,
            is_bound=not visit.is_everywhere,
        )
        return Answer(await explainer.explain(task_id))
