"""Tools with which an agent works on tasks, and tools for mail between agents."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from pydantic import Field

from grns.api.mcp.task_tools import MOST_WAIT_SECONDS, Name
from grns.api.mcp.tool import ApiCaller, Arguments, post_once, tool
from grns.errors import GrnsError, InvalidInputError
from grns.model.form import form_of
from grns.model.question import APPROVAL, question

LEASE_SECONDS = 600.0
"""A model thinks for minutes between two calls."""

Token = Annotated[str, Field(description="The token that work_next returned. It is a secret.")]
_Agent = Annotated[Name, Field(description="Your name, the same each time.")]


class NextArguments(Arguments):
    """What you can work on."""

    task_types: Annotated[list[Name], Field(min_length=1, description="Task types that you can do.")]
    pool: Annotated[Name, Field(description="The pool whose tasks you do.")] = "worker"
    agent: Annotated[Name | None, Field(description="Your name, if you are registered as an agent.")] = None
    wait_seconds: Annotated[float, Field(ge=0, le=MOST_WAIT_SECONDS)] = 20.0


class ProgressArguments(Arguments):
    """How far you are."""

    token: Token
    percent: Annotated[float | None, Field(ge=0, le=100)] = None
    step: Annotated[str | None, Field(max_length=255, description="What you do now.")] = None
    checkpoint: Annotated[
        Any, Field(description="Any JSON that would help to go on if you were interrupted.")
    ] = None


class AskArguments(Arguments):
    """A question to a person."""

    token: Token
    name: Annotated[str, Field(pattern="^[A-Za-z0-9_ -]{1,100}$", description="Its name within the task.")]
    title: Annotated[str, Field(min_length=1, max_length=255)]
    body: str | None = None
    form: Annotated[
        dict[str, Any] | None,
        Field(description="JSON Schema of a flat object, for the answer; none: approve or refuse."),
    ] = None
    to: Annotated[list[str], Field(description="Whom to ask, such as role:finance.")] = Field(
        default_factory=list
    )
    timeout_seconds: Annotated[float | None, Field(gt=0)] = None


class DoneArguments(Arguments):
    """The result of the task."""

    token: Token
    result: Annotated[Any, Field(description="Any JSON, as the task asks for it.")] = None


class FailArguments(Arguments):
    """Why the task could not be done."""

    token: Token
    message: Annotated[str, Field(min_length=1, max_length=4000)]
    error_class: Annotated[str, Field(min_length=1, max_length=255, description="Its kind, in one word.")] = (
        "AgentError"
    )
    retry: Annotated[bool, Field(description="Whether another attempt could help.")] = True
    retry_after_seconds: Annotated[float | None, Field(ge=0)] = None


class ReleaseArguments(Arguments):
    """Why you give the task back."""

    token: Token
    reason: Annotated[str, Field(min_length=1, max_length=1000)] = "released"


class SendArguments(Arguments):
    """A message."""

    type: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,64}$", description="Such as review_request.")]
    payload: Annotated[dict[str, Any], Field(description="At most 4,096 bytes of JSON.")] = Field(
        default_factory=dict
    )
    to: Annotated[Name | None, Field(description="The agent; or pass a pool, or neither: to all.")] = None
    pool: Name | None = None
    sender: Annotated[Name | None, Field(description="Your name.")] = None
    about: Annotated[str | None, Field(description="What it is about, such as the id of a task.")] = None
    reply_to: Annotated[str | None, Field(description="Id of the message that this one answers.")] = None
    token: Annotated[
        str | None, Field(description="That of your task, if you write while you work on one.")
    ] = None


class ReadArguments(Arguments):
    """Whose messages."""

    agent: _Agent
    limit: Annotated[int, Field(ge=1, le=50)] = 20
    wait_seconds: Annotated[float, Field(ge=0, le=MOST_WAIT_SECONDS)] = 0.0


class AckArguments(Arguments):
    """Messages that you have dealt with."""

    agent: _Agent
    ids: Annotated[list[str], Field(min_length=1, max_length=100)]


@tool("work", is_whole=True)
async def work_next(api: ApiCaller, said: NextArguments) -> Any:
    """Claim the next task to work on. Then call work_done, work_fail or work_release with its token.

    You have it for ten minutes; each work_progress renews that. Afterwards it runs elsewhere, and what you
    write is refused. `steps` and `checkpoint_data` are what earlier attempts have left.
    """
    body = {
        "agent_type": said.pool, "task_types": said.task_types, "wait_seconds": said.wait_seconds,
        "lease_seconds": LEASE_SECONDS, **({} if said.agent is None else {"agent": said.agent}),
    }  # fmt: skip
    claimed = await api.call("POST", "/queue/claim", body=body)
    if claimed is None:
        return {"task": None, "next": "nothing waits: call work_next again, or end"}
    task = claimed["task"]
    if task["attempt"] > 1:
        try:
            found = await api.call("POST", "/queue/steps", body={"token": claimed["token"]})
            task["steps"] = {one["name"]: one["value"] for one in found["items"]}
        except GrnsError as error:  # the task is claimed all the same, and its token must not be lost
            task["steps_error"] = f"what earlier attempts have recorded cannot be read now: {error}"
    return {"token": claimed["token"], "lease_seconds": claimed["lease_seconds"], "task": task}


@tool("work")
async def work_progress(api: ApiCaller, said: ProgressArguments) -> Any:
    """Say how far you are, and keep the task for ten more minutes. Stop if `cancel_requested` is true."""
    body = {
        "token": said.token, "progress_percent": said.percent, "current_step": said.step,
        "checkpoint_data": said.checkpoint,
    }  # fmt: skip
    return await api.call("POST", "/queue/renew", body={k: v for k, v in body.items() if v is not None})


@tool("work")
async def work_ask(api: ApiCaller, said: AskArguments) -> Any:
    """Ask a person, and wait for the answer without holding the task.

    Without an answer yet, your work on the task ends here: it comes again with work_next when there is one.
    Then call this with the same name, title, body and form: it returns the answer.
    """
    step = f"ask {said.name}"
    asked = question(
        kind="approval" if said.form is None else "question", title=said.title, body=said.body, evidence=None,
        form=APPROVAL if said.form is None else form_of(said.form), to=said.to,
    )  # fmt: skip
    taking = {"token": said.token, "step": step, "digest": asked.digest}
    found = (await api.call("POST", "/queue/signal", body=taking))["value"]
    if found is not None:
        answered = found.get("value")
        if isinstance(answered, dict) and answered.get("digest", asked.digest) != asked.digest:
            raise InvalidInputError(
                "bad_question", f"name: {said.name} was used for another question: use another name"
            )
        return found
    told = {
        "kind": asked.kind, "title": said.title, "body": said.body, "to": said.to,
        **({} if said.form is None else {"form": said.form}),
    }  # fmt: skip
    body: dict[str, Any] = {"token": said.token, "step": step, "question": told}
    if said.timeout_seconds is not None:
        body["seconds"] = said.timeout_seconds
    ended = await api.call("POST", "/queue/suspend", body=body)
    return {**ended, "next": "the task waits for a person: work on another one with work_next"}


@tool("work")
async def work_done(api: ApiCaller, said: DoneArguments) -> Any:
    """End the task with its result."""
    return await api.call("POST", "/queue/complete", body={"token": said.token, "result": said.result})


@tool("work")
async def work_fail(api: ApiCaller, said: FailArguments) -> Any:
    """End the attempt as failed. The task is tried again if attempts are left, unless retry is false."""
    body: dict[str, Any] = {
        "token": said.token, "error": {"class": said.error_class, "message": said.message},
        "retry": said.retry,
    }  # fmt: skip
    if said.retry_after_seconds is not None:
        body["retry_after_seconds"] = said.retry_after_seconds
    return await api.call("POST", "/queue/fail", body=body)


@tool("work")
async def work_release(api: ApiCaller, said: ReleaseArguments) -> Any:
    """Give the task back: it runs elsewhere, and your attempt does not count."""
    return await api.call("POST", "/queue/release", body={"token": said.token, "reason": said.reason})


@tool("work")
async def message_send(api: ApiCaller, said: SendArguments) -> Any:
    """Send a message to an agent, to a pool, or to all. Each gets it until it acknowledges it."""
    body = {name: value for name, value in said.model_dump().items() if value is not None}
    return await post_once(api, "/mail", body | {"message_id": str(uuid4())})


@tool("work", is_read_only=True)
async def message_read(api: ApiCaller, said: ReadArguments) -> Any:
    """Read the messages to you that you have not acknowledged, oldest first. Then message_ack."""
    body = {"limit": said.limit, "wait_seconds": said.wait_seconds}
    return await api.call("POST", f"/agents/{said.agent}/mail/poll", body=body)


@tool("work")
async def message_ack(api: ApiCaller, said: AckArguments) -> Any:
    """Acknowledge messages that you have dealt with: they do not come again."""
    return await api.call("POST", f"/agents/{said.agent}/mail/ack", body={"ids": said.ids})
