"""What a function takes: its parameters by annotation, in the manner of FastAPI."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError

from grns.errors import InvalidInputError
from grns.model.envelope import first_problem
from grns.model.json import jsonable
from grns.model.secret import Path, read_paths, secret_paths_of, with_secrets
from grns.worker.context import Context

_CONTEXT_NAMES = ("ctx", "context")
_PLAIN = (Any, NoneType, None, str, int, float, bool, dict, list, inspect.Parameter.empty)
# What a payload cannot be: it is a JSON object.
_NOT_OBJECTS = (str, bytes, int, float, complex, list, tuple, set, frozenset)
_GATHERING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Depends:
    """A dependency of a handler, in the annotation of a parameter: `Annotated[Http, grns.Depends(get_http)]`.

    As the default of a parameter, `http=grns.Depends(get_http)`, it works too.

    Args:
        provide: a function, a coroutine function, or a (perhaps asynchronous) generator function that yields
            once; the code after its `yield` runs when the handler has ended. It may take the `Context` and
            dependencies of its own. It is called at most once per attempt, in the worker's event loop.

    Example:
        async def get_http(ctx: grns.Context):
            async with httpx.AsyncClient(headers={"x-trace": ctx.trace_id}) as http:
                yield http

        @pool.task
        async def fetch_page(
            page: Page, http: Annotated[httpx.AsyncClient, grns.Depends(get_http)]
        ) -> dict: ...
    """

    provide: Callable[..., Any]


class Signature:
    """The parameters of a handler or of a dependency, by what fills them.

    Raises:
        InvalidInputError: `bad_handler` names the parameter that cannot be filled.
    """

    def __init__(self, function: Callable[..., Any], *, takes_payload: bool = True) -> None:
        self._function = function
        self._context: list[str] = []
        self._payload: str | None = None
        self._depends: dict[str, tuple[Depends, Signature]] = {}
        payload: Any = None
        for parameter in inspect.signature(function).parameters.values():
            annotation = _annotation(function, parameter)
            if parameter.kind in _GATHERING or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise _refused(function, f"{parameter} cannot be filled: name each parameter")
            if (depends := _depends(parameter, annotation)) is not None:
                self._depends[parameter.name] = depends, Signature(depends.provide, takes_payload=False)
            elif _is_context(parameter, annotation):
                self._context.append(parameter.name)
            elif takes_payload and self._payload is None:
                self._payload, payload = parameter.name, annotation
            elif parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
                raise _refused(
                    function,
                    f"nothing fills {parameter.name!r}: a handler takes one payload (with fields of a"
                    " model), a grns.Context, and parameters annotated with grns.Depends",
                )
        if isinstance(kind := get_origin(payload) or payload, type) and issubclass(kind, _NOT_OBJECTS):
            raise _refused(
                function,
                f"{self._payload!r} is {kind.__name__}, and a payload is a JSON object: annotate it with"
                " dict, a pydantic model, a dataclass or a TypedDict",
            )
        is_any = payload in (None, Any, dict, dict[str, Any], inspect.Parameter.empty)
        self.payload = None if is_any else _adapter(function, payload)
        if (secret := _secret_in(payload, set())) is not None and not self.secret_paths:
            raise _refused(
                function,
                f"the schema of the payload does not tell where {secret} is: name its path, as in"
                " secret=['account.password']",
            )

    @cached_property
    def secret_paths(self) -> tuple[Path, ...]:
        """The places of the payload that its annotation declares as secret."""
        return read_paths(secret_paths_of(self.payload_schema()))

    def payload_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the payload; that of any object if there is none."""
        if self.payload is None:
            return {"type": "object"}
        try:
            return self.payload.json_schema(by_alias=True)
        except PydanticUserError:
            return {"type": "object"}

    def payload_fields(self) -> set[str] | None:
        """Return the names of the payload's fields in JSON; None if it may have any."""
        if self.payload is None:
            return None
        try:
            schema = self.payload.json_schema(mode="serialization", by_alias=True)
        except PydanticUserError:
            return None
        named = schema.get("$ref", "").rpartition("/")[2]
        schema = schema["$defs"][named] if named else schema
        is_open = schema.get("additionalProperties", False) is not False
        return None if is_open or "properties" not in schema else set(schema["properties"])

    def lacks(self, key: str | None) -> str | None:
        """Return the field that a place in the payload (`customer.id`) begins with, if there is none such."""
        fields = self.payload_fields()
        first = None if key is None else key.partition(".")[0]
        return None if fields is None or first in fields else first

    @property
    def has_dependencies(self) -> bool:
        """Whether something has to be resolved before the call."""
        return bool(self._depends)

    @property
    def may_take_context(self) -> bool:
        """Whether the function, or one of its dependencies, may take the context."""
        return bool(self._context) or self.has_dependencies

    @property
    def takes_payload(self) -> bool:
        """Whether a parameter takes the payload."""
        return self._payload is not None

    @cached_property
    def result(self) -> TypeAdapter[Any] | None:
        """How the returned value is checked and serialized; None for plain JSON values."""
        annotation = getattr(self._function, "__annotations__", {}).get("return")
        try:
            annotation = _resolved(self._function, annotation)
            return None if _is_plain(annotation) else TypeAdapter(annotation)
        except (NameError, PydanticUserError, PydanticUndefinedAnnotation):
            return None  # such as one that only a type checker imports

    @cached_property
    def secret_result_paths(self) -> tuple[Path, ...]:
        """The places of the result that its annotation declares as secret."""
        if self.result is None:
            return ()
        try:
            return read_paths(secret_paths_of(self.result.json_schema(by_alias=True, mode="serialization")))
        except PydanticUserError:
            return ()

    def payload_text(self, value: Any, secret: Sequence[Path] | None = None) -> Any:
        """Return a payload as its handler will get it, as a JSON value.

        Args:
            value: what the handler takes.
            secret: where it is secret. Defaults to what the annotation shows.

        Raises:
            InvalidInputError: `bad_payload` names the field that does not fit; `undeclared_secret`.
        """
        secret = self.secret_paths if secret is None else secret
        value = {} if value is None else value
        if self.payload is None:
            return jsonable(value)
        try:
            checked = self.payload.validate_python(value)
            document = self.payload.dump_python(checked, mode="json", by_alias=True, round_trip=True)
            if secret:  # which pydantic writes as '**********'
                document = with_secrets(
                    document, self.payload.dump_python(checked, by_alias=True, round_trip=True), secret
                )
            self.payload.validate_python(document)  # as the worker will: aliases may differ
            return document
        except ValidationError as error:
            problem = first_problem(error)
            if isinstance(value, str | int | float | list | tuple):
                kind = type(value).__name__
                problem = f'document: pass one object, such as {{"number": 1}}, not {kind}; {problem}'
        except PydanticSerializationError as error:
            problem = f"document: {error}"
        raise InvalidInputError("bad_payload", f"payload.{problem}")

    def arguments(self, context: Context, payload: Any) -> dict[str, Any]:
        """Return the arguments that need no resolving."""
        arguments: dict[str, Any] = dict.fromkeys(self._context, context)
        if self._payload is not None:
            arguments[self._payload] = payload
        return arguments

    async def resolve(
        self, context: Context, resources: AsyncExitStack, known: dict[Any, Any] | None = None
    ) -> Mapping[str, Any]:
        """Return the dependencies by parameter; `resources` ends them."""
        known = {} if known is None else known
        for depends, signature in self._depends.values():
            if depends.provide not in known:
                inner = await signature.resolve(context, resources, known)
                arguments = {**signature.arguments(context, None), **inner}
                known[depends.provide] = await _provided(depends.provide, arguments, resources)
        return {name: known[depends.provide] for name, (depends, _) in self._depends.items()}


async def _provided(
    provide: Callable[..., Any], arguments: Mapping[str, Any], resources: AsyncExitStack
) -> Any:
    if inspect.isasyncgenfunction(provide):
        return await resources.enter_async_context(asynccontextmanager(provide)(**arguments))
    if inspect.isgeneratorfunction(provide):
        return resources.enter_context(contextmanager(provide)(**arguments))
    value = provide(**arguments)
    return await value if inspect.isawaitable(value) else value


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    try:
        return _resolved(function, parameter.annotation)
    except NameError as error:
        raise _refused(
            function, f"the annotation of {parameter.name!r} cannot be resolved: {error}"
        ) from error


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    """Return an annotation as a type, also where the module has them as text."""
    if annotation is inspect.Parameter.empty or not isinstance(annotation, str):
        return annotation
    inner = inspect.unwrap(function)
    names = getattr(inner, "__globals__", {})
    shim = SimpleNamespace(__annotations__={"it": annotation})
    return get_type_hints(shim, globalns=names, include_extras=True)["it"]


def _depends(parameter: inspect.Parameter, annotation: Any) -> Depends | None:
    if isinstance(parameter.default, Depends):
        return parameter.default
    if get_origin(annotation) is not Annotated:
        return None
    return next((one for one in get_args(annotation)[1:] if isinstance(one, Depends)), None)


def _is_context(parameter: inspect.Parameter, annotation: Any) -> bool:
    if annotation is parameter.empty:
        return parameter.name in _CONTEXT_NAMES
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return any(isinstance(kind, type) and issubclass(kind, Context) for kind in kinds)


def _is_plain(annotation: Any) -> bool:
    """Return whether results of a type are JSON as they are."""
    if get_origin(annotation) in (dict, list, Union, UnionType):
        return all(map(_is_plain, get_args(annotation)))
    return any(annotation is plain for plain in _PLAIN)


def _adapter(function: Callable[..., Any], annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise _refused(
            function, f"{annotation!r} is not a type of payloads: {str(error).splitlines()[0]}"
        ) from error


def _secret_in(annotation: Any, seen: set[Any]) -> str | None:
    """Return the name of a field whose value would be lost in JSON, unless its model writes it itself."""
    if isinstance(annotation, type) and issubclass(annotation, (SecretStr, SecretBytes)):
        return annotation.__name__
    for inner in get_args(annotation):
        if (found := _secret_in(inner, seen)) is not None:
            return found
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)) or annotation in seen:
        return None
    seen.add(annotation)
    decorators = annotation.__pydantic_decorators__
    if decorators.model_serializers:
        return None
    written = {name for one in decorators.field_serializers.values() for name in one.info.fields}
    for name, field in annotation.model_fields.items():
        if name not in written and (found := _secret_in(field.annotation, seen)) is not None:
            return f"{annotation.__name__}.{name}" if "." not in found else found
    return None


def _refused(function: Callable[..., Any], why: str) -> InvalidInputError:
    name = getattr(function, "__qualname__", repr(function))
    return InvalidInputError("bad_handler", f"{name}: {why}")
