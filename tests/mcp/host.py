"""A host that speaks MCP: the official client, with and without the extension for tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequest, ElicitResult, Request, RequestParams, Result, TextContent
from pydantic import Field

from grns.api.mcp.task_extension import ID
from tests.support.api import Door

WORK = {
    "work_next", "work_progress", "work_ask", "work_done", "work_fail", "work_release", "message_send",
    "message_read", "message_ack",
}  # fmt: skip

Ask = Callable[[ElicitRequest], Awaitable[ElicitResult]]


class _Params(RequestParams):
    task_id: str = Field(alias="taskId")


class _UpdateParams(_Params):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class _Created(Result):
    result_type: Literal["task"] = "task"
    task_id: str = Field(alias="taskId")


class _Get(Request[_Params, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: _Params
    name_param = "taskId"


class _Cancel(Request[_Params, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _Params
    name_param = "taskId"


class _Update(Request[_UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateParams
    name_param = "taskId"


class _Task(Result):
    status: str
    result: dict[str, Any] | None = None
    input_requests_: dict[str, Any] | None = Field(None, alias="inputRequests")


class TaskHost(ClientExtension):
    """Asks for tasks until they have ended, and shows their forms."""

    identifier = ID

    def __init__(self, ask: Ask, *, cancels: bool = False) -> None:
        self.ask = ask
        self.cancels = cancels
        self.statuses: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        """Take a task as the result of a call."""
        return [ResultClaim(result_type="task", model=_Created, resolve=self.resolve)]

    async def resolve(self, created: _Created, ctx: ClaimContext) -> CallToolResult:
        """Ask for a task until it has ended."""
        params = _Params(taskId=created.task_id)
        while True:
            task = await ctx.session.send_request(_Get(params=params), _Task)
            if self.statuses[-1:] != [task.status]:
                self.statuses.append(task.status)
            if task.status == "completed":
                return CallToolResult.model_validate(task.result)
            if task.status == "cancelled":
                return CallToolResult(content=[], is_error=True)
            if task.status == "input_required":
                answers = {}
                for key, request in (task.input_requests_ or {}).items():
                    said = await self.ask(ElicitRequest.model_validate(request))
                    answers[key] = said.model_dump(by_alias=True, mode="json", exclude_none=True)
                told = _UpdateParams(taskId=created.task_id, inputResponses=answers)
                await ctx.session.send_request(_Update(params=told), Result)
            if self.cancels:
                await ctx.session.send_request(_Cancel(params=params), Result)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def host(url: str, key: str, **options: Any) -> AsyncIterator[Client]:
    """Connect to the server at the URL of an API."""
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), **options) as client,
    ):
        yield client


async def called(client: Client, name: str, /, **arguments: Any) -> Any:
    """Call a tool, and return its value."""
    answer = await client.call_tool(name, arguments)
    text = text_of(answer)
    assert not answer.is_error, text
    value = json.loads(text)
    assert answer.structured_content == (value if isinstance(value, dict) else {"value": value})
    return value


async def refused(client: Client, name: str, /, **arguments: Any) -> str:
    """Call a tool that refuses, and return why."""
    answer = await client.call_tool(name, arguments)
    assert answer.is_error, text_of(answer)
    return text_of(answer)


def text_of(answer: CallToolResult) -> str:
    """Return the text of an answer."""
    (content,) = answer.content
    assert isinstance(content, TextContent)
    return content.text


async def key(door: Door, *scopes: str) -> str:
    """Make a key of the default workspace."""
    return await door.key(*scopes, workspace="default")


async def tools_of(client: Client) -> set[str]:
    """Return the names of the tools that there are."""
    return {one.name for one in (await client.list_tools()).tools}
