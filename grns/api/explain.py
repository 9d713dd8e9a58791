"""Why a task is where it is, in a sentence, and what happened to it, step by step."""

from __future__ import annotations

from starlette.responses import Response

from grns.api.access import Reader
from grns.api.answer import Answer
from grns.api.route import router
from grns.api.task import TaskId
from grns.diagnose.explain.collect import Explainer
from grns.diagnose.explain.explanation import Explanation

routes = router("tasks")


@routes.get("/tasks/{task_id}/explain", response_model=Explanation)
async def explain_task(request_context: Reader, task_id: TaskId) -> Response:
    """Explain why a task has its status, what helps, and what happened to it."""
    context = request_context.context
    async with request_context.reading() as database:
        explainer = Explainer(
            database=database,
            whole=context.database,
            transport=context.transport,
            workspace=request_context.workspace,
            is_bound=not request_context.is_everywhere,
        )
        return Answer(await explainer.explain(task_id))
