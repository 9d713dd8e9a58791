"""Tools for tasks, agents and questions."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from pydantic import Field

from grns.api.in_process import ApiProblemError
from grns.api.mcp.tool import ApiCaller, Arguments, post_once, tool
from grns.errors import GrnsError

MOST_WAIT_SECONDS = 25.0
"""Hosts end a call after a minute, some after half of one."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 1.0
_ENDED = ("succeeded", "failed", "dead", "cancelled")
_BRIEF = (
    "id", "task_type", "agent_type", "status", "priority", "attempt", "created_at", "finished_at",
    "waits_for", "progress_percent", "current_step", "title", "tags",
)  # fmt: skip
# Arguments that the API calls otherwise.
_WIRE = {"pool": "agent_type", "agent": "target_agent", "requires": "required_capabilities"}

TaskId = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$", description="Id of the task: gr-…")]
Name = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
WaitSeconds = Annotated[
    float, Field(ge=0, le=MOST_WAIT_SECONDS, description="How long to wait for its end, at most 25 seconds.")
]


class SubmitArguments(Arguments):
    """What to do, by whom, and when."""

    task_type: Annotated[Name, Field(description="What to do: a task type that workers of the pool handle.")]
    pool: Annotated[Name, Field(description="The pool whose workers run it.")] = "worker"
    payload: Annotated[dict[str, Any], Field(description="Its input, a JSON object.")] = Field(
        default_factory=dict
    )
    priority: Annotated[int, Field(ge=0, le=3, description="0 is the most urgent.")] = 2
    delay_seconds: Annotated[float, Field(ge=0)] = 0.0
    idempotency_key: Annotated[
        str | None, Field(description="The same key twice makes one task: pass one if you may call again.")
    ] = None
    agent: Annotated[Name | None, Field(description="Only this agent may run it.")] = None
    requires: Annotated[
        list[Name] | None, Field(description="Only agents with these capabilities may run it.")
    ] = None
    title: Annotated[str | None, Field(description="One line for the people who look at lists.")] = None
    description: str | None = None
    tags: Annotated[list[str] | None, Field(description="To find it by, as `tag:relaunch` in a filter.")] = (
        None
    )
    metadata: Annotated[dict[str, Any] | None, Field(description="What other programs know it by.")] = None
    created_by: Annotated[str | None, Field(description="Who wants it done, if it is not you.")] = None
    wait_seconds: WaitSeconds = 0.0


class TaskArguments(Arguments):
    """A task."""

    task_id: TaskId


class WaitArguments(TaskArguments):
    """A task, and how long to wait."""

    wait_seconds: WaitSeconds = MOST_WAIT_SECONDS


class CancelArguments(TaskArguments):
    """A task, and why it is to end."""

    reason: Annotated[str | None, Field(max_length=1000)] = None


class ListArguments(Arguments):
    """Which tasks."""

    filter: Annotated[
        str | None,
        Field(
            description="Such as `status:dead`, `pool:coder status:running`, `type:import`, `tag:relaunch`."
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=50)] = 20


class AgentListArguments(Arguments):
    """Which agents."""

    pool: Name | None = None
    capability: Name | None = None
    health: Literal["healthy", "degraded", "stale", "dead", "stopped", "absent"] | None = None


class QuestionListArguments(Arguments):
    """Which questions."""

    asked_of: Annotated[str | None, Field(description="Only what asks this one, such as role:finance.")] = (
        None
    )
    limit: Annotated[int, Field(ge=1, le=50)] = 20


class AnswerArguments(Arguments):
    """An answer to a question, as its form wants it."""

    question_id: UUID
    digest: Annotated[str, Field(description="That of the question, as question_show returned it.")]
    answer: Annotated[
        dict[str, Any], Field(description='Fields of its form; an approval has {"approved": true}.')
    ]
    comment: str | None = None


class QuestionArguments(Arguments):
    """A question."""

    question_id: UUID


@tool("submit")
async def task_submit(api: ApiCaller, said: SubmitArguments) -> Any:
    """Submit a task: workers run it, and it is retried if they fail.

    Returns its id, and its result if it ended within wait_seconds.
    """
    wanted = said.model_dump(exclude={"wait_seconds"}, exclude_none=True)
    body = {_WIRE.get(name, name): value for name, value in wanted.items()}
    made = await submit(api, body)
    return await submitted(api, made["id"], said.wait_seconds)


@tool("read", is_read_only=True)
async def task_wait(api: ApiCaller, said: WaitArguments) -> Any:
    """Wait for the end of a task, and return its result or its error. Call again if it has not ended."""
    return await until_ended(api, said.task_id, said.wait_seconds)


@tool("read", is_read_only=True)
async def task_show(api: ApiCaller, said: TaskArguments) -> Any:
    """Return all that is known of a task: payload, status, result, last error, progress."""
    return await api.call("GET", f"/tasks/{said.task_id}")


@tool("read", is_read_only=True)
async def task_list(api: ApiCaller, said: ListArguments) -> Any:
    """List tasks, the latest first."""
    page = await api.call("GET", "/tasks", query={"filter": said.filter, "limit": said.limit})
    return {"tasks": [{name: one.get(name) for name in _BRIEF} for one in page["items"]], **_more(page)}


@tool("read", is_read_only=True)
async def task_explain(api: ApiCaller, said: TaskArguments) -> Any:
    """Explain why a task has its status: what it waits for, what is wrong, and what helps."""
    return await api.call("GET", f"/tasks/{said.task_id}/explain")


@tool("operate", is_destructive=True)
async def task_cancel(api: ApiCaller, said: CancelArguments) -> Any:
    """Cancel a task. One that runs is told to end."""
    body = {} if said.reason is None else {"reason": said.reason}
    return brief(await api.call("POST", f"/tasks/{said.task_id}/cancel", body=body))


@tool("read", is_read_only=True)
async def agent_list(api: ApiCaller, said: AgentListArguments) -> Any:
    """List agents: whether they are there, what they can do, and what they work on."""
    query = {"agent_type": said.pool, "capability": said.capability, "health": said.health}
    page = await api.call("GET", "/agents", query=query)
    kept = ("name", "agent_type", "capabilities", "health", "status", "running", "current_task_id", "model")
    return {"agents": [{name: one[name] for name in kept} for one in page["items"]], **_more(page)}


@tool("read", is_read_only=True)
async def question_list(api: ApiCaller, said: QuestionListArguments) -> Any:
    """List what tasks ask people and wait for."""
    page = await api.call("GET", "/questions", query={"asked_of": said.asked_of, "limit": said.limit})
    kept = ("id", "task_id", "task_type", "kind", "title", "asked_of", "due_at")
    return {"questions": [{name: one[name] for name in kept} for one in page["items"]], **_more(page)}


def _more(page: dict[str, Any]) -> dict[str, str]:
    """Say that a list has more."""
    return {} if page["next_cursor"] is None else {"more": "there are more: ask for fewer by a filter"}


@tool("read", is_read_only=True)
async def question_show(api: ApiCaller, said: QuestionArguments) -> Any:
    """Return a question with all that is shown, its form and its digest."""
    found: dict[str, Any] = await api.call("GET", f"/questions/{said.question_id}")
    first = ("id", "task_id", "kind", "title", "digest", "form")  # a long text behind them may be cut
    return {name: found[name] for name in first} | found


@tool("answer", is_destructive=True)
async def question_answer(api: ApiCaller, said: AnswerArguments) -> Any:
    """Answer a question for a person who has decided: its task runs on."""
    body = {"answer": said.answer, "digest": said.digest, "comment": said.comment}
    await api.call("POST", f"/questions/{said.question_id}/answer", body=body)
    return {"answered": str(said.question_id)}


async def submit(api: ApiCaller, body: dict[str, Any]) -> dict[str, Any]:
    """Submit a task, with a key: sent again, it is one task."""
    made: dict[str, Any] = await post_once(api, "/tasks", {"idempotency_key": f"mcp-{uuid4()}", **body})
    return made


async def submitted(api: ApiCaller, task_id: str, seconds: float) -> dict[str, Any]:
    """Return a new task once it has ended, or its id after that time.

    If the task cannot be read, it was submitted all the same: who is told of an error submits it again.
    """
    then = "call task_wait for its result"
    if seconds > 0:
        try:
            return await until_ended(api, task_id, seconds)
        except ApiProblemError as error:
            then = f"do not submit it again; its result cannot be read: {error.problem.detail}"
        except GrnsError as error:
            then = f"do not submit it again; its result cannot be read now: {error}"
    return {"task_id": task_id, "status": "submitted", "next": then}


async def until_ended(api: ApiCaller, task_id: str, seconds: float) -> dict[str, Any]:
    """Return a task once it has ended, or as it is after that time."""
    until, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while True:
        task = await api.call("GET", f"/tasks/{task_id}")
        left = until - time.monotonic()
        if task["status"] in _ENDED or left <= 0:
            return brief(task)
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def brief(task: dict[str, Any]) -> dict[str, Any]:
    """Return what a caller needs of a task: its status, and its result or error."""
    found: dict[str, Any] = {"task_id": task["id"], "status": task["status"]}
    if task["status"] == "succeeded":
        found["result"] = task["result"]
    elif task["status"] in _ENDED:
        found["error"] = task["last_error"]
    else:
        kept = ("progress_percent", "current_step", "waits_for")
        found |= {name: task[name] for name in kept if task.get(name) is not None}
        found["next"] = "it has not ended: call task_wait again"
    return found
