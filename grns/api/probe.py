"""What machines ask of a process: whether it lives, whether it is ready, its metrics, and what it can do."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from grns.api.access import ReaderOfAll
from grns.api.answer import Answer
from grns.api.context import ApiContext
from grns.api.health import Readiness
from grns.api.route import PREFIX, router

routes = router("probes", prefix="")

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"model": Readiness, "description": "Not now, and why"}}


@routes.get("/livez", response_model=Readiness)
async def is_alive() -> Response:
    """Liveness probe."""
    return Answer({"status": "ok"})


@routes.get("/readyz", response_model=Readiness, responses=_NOT_READY)
async def is_ready(request: Request) -> Response:
    """Readiness probe: PostgreSQL answered recently, and its schema fits."""
    context: ApiContext = request.app.state.context
    obstacle = "it is ending" if context.stopping.is_set() else await context.health.obstacle()
    return Answer({"status": obstacle or "ok"}, status_code=200 if obstacle is None else 503)


@routes.get(
    "/metrics", response_model=Any, responses={200: {"content": {"text/plain": {}}, "description": "Metrics"}}
)
async def read_metrics(request_context: ReaderOfAll) -> Response:
    """Return Prometheus metrics of the process."""
    return Response(request_context.context.metrics(), media_type=_METRICS_TYPE)


@routes.get(f"{PREFIX}/openapi.json", response_model=dict[str, Any])
async def read_openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Answer(request.app.openapi())
