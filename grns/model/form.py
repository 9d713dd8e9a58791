"""Forms: the JSON Schema of an answer, which is a flat object, and the check of an answer against it.

Only what every place can show is allowed, as in forms of MCP: text, numbers, yes or no, one or several of a
list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AwareDatetime, ConfigDict, Field, HttpUrl, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from typing_extensions import TypedDict

from grns.errors import InvalidInputError
from grns.model.form_shape import LIMITS, bad, shape_of

_TEXTS: dict[str, Any] = {
    "date": date,
    "date-time": AwareDatetime,
    "uri": HttpUrl,
    "email": Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$", max_length=320)],
}
_NUMBERS = {"number": float, "integer": int}


def form_of(model: Any) -> dict[str, Any]:
    """Return the form of a pydantic model, dataclass or TypedDict, or a form as it is.

    Raises:
        InvalidInputError: `bad_handler`: a field is no text, number, yes or no, or choice from a list.

    Example:
        class Refund(BaseModel):
            amount: Annotated[float, Field(ge=0)]
            reason: Literal["late", "broken"] = "late"
    """
    try:
        schema = dict(model) if isinstance(model, Mapping) else TypeAdapter(model).json_schema()
    except PydanticUserError as error:
        raise bad(f"{model!r} is no form: {error}") from error
    form = shape_of(schema)
    _model(form)  # such as a pattern that cannot be compiled
    return form


def answer_of(form: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """Return an answer as the form wants it, as JSON. Raises InvalidInputError (`bad_answer`)."""
    model = _model(form)
    if not isinstance(answer, Mapping):
        raise InvalidInputError("bad_answer", "an answer is an object")
    try:
        checked = model.validate_python(answer)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in one['loc']) or 'answer'}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False)[:10]
        )
        raise InvalidInputError("bad_answer", problems) from None
    dumped: dict[str, Any] = model.dump_python(checked, mode="json")
    # What was decided is to be read in the log: with the defaults.
    defaults = {name: field["default"] for name, field in form["properties"].items() if "default" in field}
    return defaults | dumped


def read_answer(form: Mapping[str, Any], said: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return what a page or a terminal has read as texts as an answer that is not checked yet."""
    answer: dict[str, Any] = {}
    for name, field in form["properties"].items():
        texts = [text.strip() for text in said.get(name, ()) if text.strip()]
        kind = field["type"]
        if kind == "boolean":
            answer[name] = bool(texts) and texts[-1].lower() in ("true", "yes", "y", "on", "1")
        elif kind == "array":
            answer[name] = texts
        elif texts and kind in _NUMBERS:
            answer[name] = _number(texts[-1])
        elif texts:
            answer[name] = texts[-1]
    return answer


def _number(text: str) -> Any:
    try:
        return int(text) if re.fullmatch(r"[+-]?\d{1,30}", text) else float(text)
    except ValueError:
        return text  # the check says what is wrong


def _model(form: Mapping[str, Any]) -> TypeAdapter[Any]:
    """Return what checks an answer."""
    fields: dict[str, Any] = {}
    for name, field in form["properties"].items():
        limits = {LIMITS[key]: field[key] for key in LIMITS if key in field}
        checked: Any = Annotated[_type(field), Field(**limits)]
        checked = checked | None if field.get("nullable") else checked
        fields[name] = checked if name in form["required"] else NotRequired[checked]
    try:
        make: Any = TypedDict
        answer = make("answer", fields)
        answer.__pydantic_config__ = ConfigDict(extra="forbid")
        return TypeAdapter(answer)
    except Exception as error:
        raise bad(f"the form cannot be checked: {error}") from error


def _type(field: Mapping[str, Any]) -> Any:
    if field["type"] == "array":
        return list[Literal[tuple(field["items"]["enum"])]]  # type: ignore[misc]
    if "enum" in field:
        return Literal[tuple(field["enum"])]
    if field["type"] == "string":
        return _TEXTS.get(field.get("format", ""), str)
    if field["type"] == "boolean":
        return Annotated[bool, Field(strict=True)]
    return Annotated[_NUMBERS[field["type"]], Field(strict=True)]
