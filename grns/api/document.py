"""The OpenAPI document: what FastAPI knows, and what the routes say besides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from grns.access.principals import SCOPES
from grns.api.route import ApiRoute

_REFERENCE = "#/components/schemas/{model}"
_KEY = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "grns_<id>_<secret>",
    "description": "Scopes: " + "; ".join(f"{scope}: {meaning}" for scope, meaning in SCOPES.items()),
}


class ProblemDocument(BaseModel):
    """A problem (RFC 9457). `code` is stable, `detail` is a sentence."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    trace_id: str | None = None


def completed(document: dict[str, Any], routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """Return a document with the models of bodies and problems in it, and how keys are shown."""
    models: set[type[BaseModel]] = {
        ProblemDocument,
        *(route.takes for route in routes if route.takes is not None),
    }
    in_order = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema([(model, "validation") for model in in_order], ref_template=_REFERENCE)
    components = document.setdefault("components", {})
    schemas = {**found["$defs"], **components.get("schemas", {})}
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = {"key": _KEY}
    return document
