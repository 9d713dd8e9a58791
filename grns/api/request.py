"""The bodies of requests: JSON, read strictly and no further than they may be long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.requests import ClientDisconnect, Request

from grns.api.context import ApiContext
from grns.errors import InvalidInputError
from grns.model import json as strict_json
from grns.model.envelope import Instant, first_problem
from grns.model.json import Limits, Unfit

_JSON = "application/json"
# Around a payload there is room for the other fields.
_MORE_BYTES, _MORE_DEPTH, _MORE_NODES = 64 * 1024, 2, 200

Model = TypeVar("Model", bound=BaseModel)
# JSON Schema has no words for the bounds of a time.
Moment = Annotated[Instant, WithJsonSchema({"type": "string", "format": "date-time"})]


class Body(BaseModel):
    """A request body. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Reason(Body):
    """The reason, kept in the event log."""

    reason: Annotated[str, Field(pattern=r"^[^\x00]{1,1000}$")] | None = None


SMALL = Limits(document_bytes=64 * 1024)
# Of a request: some follow from the settings.
LimitsOf = Limits | Callable[[ApiContext], Limits]
# By the dependency that reads it.
_MODELS: dict[object, type[BaseModel]] = {}


def strict_body(model: type[Model], limits: LimitsOf = SMALL, *, code: str = "bad_request") -> Any:
    """Return the dependency that reads a body. Declare it behind the scope: who lacks it gets 403 first.

    It raises `InvalidInputError` that says what is wrong, with `code` if the body does not fit the model.
    """

    async def read_body(request: Request) -> Model:
        fields = await read_fields(request, model, _of(request, limits), code=code)
        try:
            return model.model_validate(fields)
        except ValidationError as error:
            raise InvalidInputError(code, first_problem(error)) from error

    _MODELS[read_body] = model
    return Depends(read_body)


def strict_fields(
    model: type[BaseModel],
    limits: LimitsOf,
    *,
    code: str,
    parse: Callable[[bytes, Limits], Any] = strict_json.parse,
) -> Any:
    """Return the dependency that reads the fields of a body as a `dict`, for endpoints that check them."""

    async def read_body(request: Request) -> dict[str, Any]:
        return await read_fields(request, model, _of(request, limits), code=code, parse=parse)

    _MODELS[read_body] = model
    return Depends(read_body)


def body_of(endpoint: Callable[..., Any]) -> type[BaseModel] | None:
    """Return the model of the body that an endpoint declares with one of its parameters."""
    for hint in get_type_hints(endpoint, include_extras=True).values():
        for declared in getattr(hint, "__metadata__", ()):
            model = _MODELS.get(getattr(declared, "dependency", None))
            if model is not None:
                return model
    return None


ReasonBody = Annotated[Reason, strict_body(Reason)]


def _of(request: Request, limits: LimitsOf) -> Limits:
    return limits if isinstance(limits, Limits) else limits(request.app.state.context)


def around(limits: Limits) -> Limits:
    """Return the limits of a body that has a document of such limits in it."""
    return Limits(limits.document_bytes + _MORE_BYTES, limits.depth + _MORE_DEPTH, limits.nodes + _MORE_NODES)


async def read_fields(
    request: Request,
    model: type[BaseModel],
    limits: Limits,
    *,
    code: str = "bad_request",
    parse: Callable[[bytes, Limits], Any] = strict_json.parse,
) -> dict[str, Any]:
    """Return the body's fields, none of which the model does not have; without a body there are none."""
    body = await _read_bytes(request, limits)
    if not body:
        return {}
    fields = parse(body, limits)
    if isinstance(fields, Unfit):
        raise fields.error()
    if not isinstance(fields, dict):
        raise InvalidInputError(code, "the body is to be a JSON object")
    unknown = sorted(fields.keys() - model.model_fields.keys())
    if unknown:
        raise InvalidInputError(code, f"{ascii(unknown[0])[1:-1][:100]}: there is no such field")
    return fields


async def _read_bytes(request: Request, limits: Limits) -> bytes:
    body = bytearray()
    try:
        async for part in request.stream():
            if part and not body:
                _check_type(request)
            body += part
            if len(body) > limits.document_bytes:
                raise InvalidInputError("too_large", f"a body here has {limits.document_bytes} bytes at most")
    except ClientDisconnect as error:
        raise InvalidInputError("cut_off", "the body ended before it was whole") from error
    return bytes(body)


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise InvalidInputError(
            "bad_content_type", f"a body is to be {_JSON}: say so in the header Content-Type"
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidInputError("bad_content_type", "a body is to be sent as it is, and not compressed")
