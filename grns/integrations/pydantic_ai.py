"""pydantic-ai: agents whose model requests and tool calls are steps, and whose approvals wait for people.

```python
import grns
from grns.integrations.pydantic_ai import GrnsDurability, ask_people, run_agent
from pydantic_ai import Agent

pool = grns.Pool("support")
agent = Agent(
    "openai:gpt-5", name="support", capabilities=[GrnsDurability(), ask_people(to=["role:support"])]
)


@agent.tool_plain(requires_approval=True)
def refund(order: int, euro: float) -> str: ...


@pool.task
async def answer(ticket: dict, ctx: grns.Context) -> str:
    return (await run_agent(ctx, agent, ticket["text"])).output
```

A model request or a tool call whose result is recorded is not run again, on whichever worker the next attempt
runs. While a person has not approved a tool call, the task waits without a slot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from pydantic_ai import Agent
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.capabilities import RequestInput
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    ExternalEventError,
    ExternalEventWaiter,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    external_event_scope,
)
from pydantic_ai.tools import DeferredToolRequests

from grns.errors import WaitTimeoutError
from grns.worker.context import Context

__all__ = ["GrnsDurability", "ask_people", "run_agent"]

_NO_CONFIG: RoleBasedOperationConfig[None] = RoleBasedOperationConfig(
    model=None, event=None, capability=None, tool=None
)
_context: ContextVar[Context | None] = ContextVar("grns_context", default=None)


async def run_agent(
    ctx: Context, agent: Agent[Any, Any], prompt: Any = None, /, **options: Any
) -> AgentRunResult[Any]:
    """Run an agent in a handler, whose model requests and tool calls are recorded as steps.

    Args:
        ctx: the context of the handler.
        agent: an agent with a `name` and the capability `GrnsDurability()`.
        prompt: the user's prompt.
        options: those of `Agent.run`, such as `deps`.

    Returns:
        The result of the run.

    Raises:
        Exception: what `Agent.run` raises. The steps before it are recorded.

    Example:
        result = await run_agent(ctx, agent, ticket["text"])
    """
    token = _context.set(ctx)
    try:
        with external_event_scope(_Waiter(ctx)):
            return await agent.run(prompt, **options)
    finally:
        _context.reset(token)


def ask_people(
    *, to: Sequence[str] = (), timeout: timedelta | None = None, name: str = "deferred_tool_calls"
) -> RequestInput[Any]:
    """Return the capability that asks people to approve tool calls, as `ctx.approve` does.

    Args:
        to: whom to ask, in your own words, such as `["role:support"]`.
        timeout: maximum time to wait. After it the model hears that no decision came. Defaults to no limit.
        name: name of the wait, if an agent has several.

    Example:
        agent = Agent(model, name="support", capabilities=[GrnsDurability(), ask_people(to=["role:support"])])
    """

    def ask(_run: Any, requests: DeferredToolRequests, _token: str) -> None:
        asked = _asked.get()
        if asked is not None:
            asked.to = list(to)
            asked.calls = [
                {"id": call.tool_call_id, "tool": call.tool_name, "arguments": call.args_as_dict()}
                for call in requests.approvals
            ]

    return RequestInput(ask, timeout=timeout, name=name)


class _Asked:
    """What is asked in a step, to be recorded with it."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.to: list[str] = []


_asked: ContextVar[_Asked | None] = ContextVar("grns_asked", default=None)


class _Waiter(ExternalEventWaiter):
    """Waits for people or for a signal, and gives the slot away meanwhile."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._count = 0

    async def wait(
        self, name: str, *, ask: Callable[[str], Awaitable[Any]], timeout: timedelta | None
    ) -> Any:
        """Return the answer that `ask` gives, that of people, or the value of the signal of the token."""
        self._count += 1
        token = f"{self._ctx.id}.{self._count}"

        async def recorded() -> dict[str, Any]:
            asked = _Asked()
            outer = _asked.set(asked)
            try:
                answer = await ask(token)
            finally:
                _asked.reset(outer)
            return {"answer": answer, "calls": asked.calls, "to": asked.to}

        found = await self._ctx.step(f"ask: {name}", recorded)
        if found["answer"] is not None:
            return found["answer"]
        try:
            if found["calls"]:
                return await self._approvals(name, found["calls"], found["to"], timeout)
            return await self._ctx.wait_for_signal(token, timeout=timeout)
        except WaitTimeoutError as error:
            raise ExternalEventError(str(error)) from error

    async def _approvals(
        self, name: str, calls: Sequence[dict[str, Any]], to: Sequence[str], timeout: timedelta | None
    ) -> dict[str, Any]:
        approvals: dict[str, Any] = {}
        who: dict[str, Any] = {}
        for call in calls:
            approval = await self._ctx.approve(
                f"{name}: {call['tool']}",
                title=f"Call {call['tool']}?",
                evidence=call["arguments"],
                to=to,
                timeout=timeout,
            )
            denied = {"kind": "tool-denied", "message": approval.comment or "A person has refused this call."}
            approvals[call["id"]] = True if approval.value else denied
            if approval.answered_by is not None:
                who[call["id"]] = approval.answered_by
        return {"approvals": approvals, "answered_by": who}


class _Backend(JournalCallableOperationBackend[None]):
    """Records each operation as a step of the task."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,
    ) -> object:
        """Run an operation, or return what is recorded of it."""
        ctx = _context.get()
        if ctx is None:
            return await body()

        async def run() -> Any:
            return await body()

        return await ctx.step(name.replace("#", "-")[:255], run)


@dataclass(init=False)
class GrnsDurability(BaseDurabilityCapability[Any]):
    """The capability that makes an agent's run durable in a handler of grns; elsewhere it runs as usual.

    Example:
        agent = Agent("openai:gpt-5", name="research", capabilities=[GrnsDurability()])
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="grns",
        durable_unit_noun="step",
        durable_container_noun="task",
        codec=JSON_CODEC,
        wrapped_toolset_kinds=frozenset({"function", "mcp"}),
        toolset_lifecycles={"function": "enter-never", "mcp": "enter-in-durable-unit"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        sequential_tools_in_durable_context=True,
    )

    def __init__(self) -> None:
        super().__init__(models=None, event_stream_handler=None, name=None)

    @property
    def in_durable_context(self) -> bool:
        """Whether the agent runs in `run_agent`."""
        return _context.get() is not None

    def get_durable_operation_backend(self) -> DurableOperationBackend[Any]:
        """Return what records the operations."""
        return _Backend(agent_name=self.name, default_model_id=self.default_model_id, config=_NO_CONFIG)
