"""The extension `io.modelcontextprotocol/tasks` (SEP-2663): a tool call becomes a task.

A question that the task asks is a form that the host shows. Task ids are those of grns, so they outlive this
process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp.server.extension import MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, RequestParams
from pydantic import Field

from grns.api.answer import dumps
from grns.api.in_process import ApiProblemError

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from grns.api.mcp.tool import ApiCaller

ID = "io.modelcontextprotocol/tasks"
_VERSIONS = frozenset({"2026-07-28"})
_LEAST_POLL_MS, _MOST_POLL_MS = 500, 5000
_WORKING = ("queued", "running", "retry_wait", "waiting")


class GetParams(RequestParams):
    """Which task."""

    task_id: str = Field(alias="taskId", pattern="^[A-Za-z0-9_-]{1,64}$")


class CancelParams(GetParams):
    """Which task."""


class UpdateParams(GetParams):
    """Answers to what a task asks, by the ids of its questions."""

    input_responses: dict[str, Any] = Field(alias="inputResponses")


def wants_tasks(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client takes tasks for results."""
    told = ctx.session.client_capabilities
    return ctx.protocol_version in _VERSIONS and told is not None and ID in (told.extensions or {})


class TaskExtension:
    """Methods of the extension, on the tasks and questions of the API."""

    def install(
        self, server: Server[Any], make_api: Callable[[ServerRequestContext[Any, Any]], ApiCaller]
    ) -> None:
        """Serve the methods."""

        def served(function: Callable[[ApiCaller, Any], Any]) -> Any:
            async def handle(ctx: ServerRequestContext[Any, Any], params: Any) -> Any:
                if ctx.protocol_version not in _VERSIONS:
                    raise MCPError(METHOD_NOT_FOUND, "Method not found")
                require_client_extension(ctx, ID)
                try:
                    return await function(make_api(ctx), params)
                except ApiProblemError as error:
                    raise MCPError(INVALID_PARAMS, error.problem.detail) from error

            return handle

        for one in (
            MethodBinding("tasks/get", GetParams, served(self.get)),
            MethodBinding("tasks/update", UpdateParams, served(self.update)),
            MethodBinding("tasks/cancel", CancelParams, served(self.cancel)),
        ):
            server.add_request_handler(one.method, one.params_type, one.handler)
        server.extensions[ID] = {}

    async def handle(self, api: ApiCaller, task_id: str) -> dict[str, Any]:
        """Return a task as the result of a tool call."""
        return {**await self._view(api, task_id), "resultType": "task"}

    async def get(self, api: ApiCaller, params: GetParams) -> dict[str, Any]:
        """Return a task as it is."""
        return await self._view(api, params.task_id)

    async def update(self, api: ApiCaller, params: UpdateParams) -> dict[str, Any]:
        """Answer what a task asks. A question that is not open any more is passed over."""
        page = await api.call("GET", "/questions", query={"task_id": params.task_id})
        asked = {str(one["id"]): one for one in page["items"]}
        for key, response in params.input_responses.items():
            question_id, _, digest = key.partition(".")
            if question_id not in asked:
                continue
            question = await api.call("GET", f"/questions/{question_id}")
            answer = _answer(question, response)
            if answer is not None:
                # Of what the user has seen: if the task asks something else now, the answer is refused.
                body = {"answer": answer, "digest": digest}
                await api.call("POST", f"/questions/{question_id}/answer", body=body)
        return {}

    async def cancel(self, api: ApiCaller, params: CancelParams) -> dict[str, Any]:
        """Cancel a task."""
        await api.call("POST", f"/tasks/{params.task_id}/cancel", body={"reason": "cancelled over MCP"})
        return {}

    async def _view(self, api: ApiCaller, task_id: str) -> dict[str, Any]:
        task = await api.call("GET", f"/tasks/{task_id}")
        view = {
            "taskId": task_id, "createdAt": task["created_at"], "lastUpdatedAt": task["updated_at"],
            "ttlMs": None, "pollIntervalMs": _poll_ms(task),
        }  # fmt: skip
        if task["status"] == "waiting" and task["waits_for"] == "signal":
            forms = await self._forms(api, task_id)
            if forms:
                return {**view, "status": "input_required", "inputRequests": forms}
        if task["status"] in _WORKING:
            step = {} if task.get("current_step") is None else {"statusMessage": task["current_step"]}
            return {**view, "status": "working", **step}
        if task["status"] == "cancelled":
            return {**view, "status": "cancelled"}
        return {**view, "status": "completed", "result": _result_of(task)}

    async def _forms(self, api: ApiCaller, task_id: str) -> dict[str, Any]:
        """Return what a task asks people, as requests to the host."""
        page = await api.call("GET", "/questions", query={"task_id": task_id})
        forms = {}
        for one in page["items"]:
            question = await api.call("GET", f"/questions/{one['id']}", query={"is_seen": "false"})
            evidence = None if question["evidence"] is None else dumps(question["evidence"]).decode()
            message = "\n\n".join(filter(None, (question["title"], question["body"], evidence)))
            params = {"mode": "form", "message": message, "requestedSchema": question["form"]}
            key = f"{one['id']}.{question['digest']}"
            forms[key] = {"method": "elicitation/create", "params": params}
        return forms


def _answer(question: dict[str, Any], response: Any) -> dict[str, Any] | None:
    """Return what a person has answered; None if they have put it off. Who declines an approval refuses."""
    if not isinstance(response, dict):
        return None
    if response.get("action") == "accept" and isinstance(response.get("content"), dict):
        content: dict[str, Any] = response["content"]
        return content
    is_refused = response.get("action") == "decline" and question["kind"] == "approval"
    return {"approved": False} if is_refused else None


def _result_of(task: dict[str, Any]) -> dict[str, Any]:
    """Return what the tool call has as its result. A failure is one of the tool, not of the protocol."""
    value = task["result"] if task["status"] == "succeeded" else task["last_error"]
    structured = value if isinstance(value, dict) else {"value": value}
    return {
        "content": [{"type": "text", "text": dumps(value).decode()}],
        "structuredContent": structured,
        "isError": task["status"] != "succeeded",
    }


def _poll_ms(task: dict[str, Any]) -> int:
    """Return how often to ask: twice a second at first, then more and more seldom."""
    version: int = task["version"]
    return min(_MOST_POLL_MS, _LEAST_POLL_MS * (1 + version))
