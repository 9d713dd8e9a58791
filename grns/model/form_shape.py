"""The shape of a form: a JSON Schema as every place can show it. It needs no pydantic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from grns.errors import InvalidInputError

MOST_FIELDS = 50
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_FORMATS = frozenset({"date", "date-time", "uri", "email"})
LIMITS = {
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "minItems": "min_length",
    "maxItems": "max_length",
}


def shape_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema as a form: one of its own kind for each form, so that it has one digest.

    Raises InvalidInputError: `bad_handler`.
    """
    definitions = schema.get("$defs", {})
    fields = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(fields, Mapping) or not fields:
        raise bad("a form is an object with fields, such as a pydantic model")
    if len(fields) > MOST_FIELDS:
        raise bad(f"a form has at most {MOST_FIELDS} fields")
    return {
        "type": "object",
        "properties": {name: _field(name, field, definitions) for name, field in fields.items()},
        "required": sorted(schema.get("required", ())),
    }


def _field(name: str, field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return one field, without references and with the keys that are known."""
    if not _NAME.fullmatch(name):
        raise bad(f"{name!r} cannot be the name of a field: write A-Z a-z 0-9 _, beginning with a letter")
    told = {
        key: field[key]
        for key in ("title", "description", "default", "nullable")
        if field.get(key) is not None
    }
    inner = _resolved(field, definitions)
    kinds = [one for one in inner.get("anyOf", ()) if one.get("type") != "null"]
    if len(kinds) == 1:  # or None
        told["nullable"] = True
        inner = _resolved(kinds[0], definitions)
    if "const" in inner:
        inner = {"type": "string", "enum": [inner["const"]]}
    kind = inner.get("type")
    limits = {key: inner[key] for key in LIMITS if key in inner}
    checked = {"type", "title", "description", "default", "examples", "nullable", *limits}
    found: dict[str, Any] | None = None
    if kind == "array" and "enum" in (items := _resolved(inner.get("items", {}), definitions)):
        checked |= {"items"}
        found = {"type": "array", "items": {"type": "string", "enum": _choices(name, items)}}
    elif kind == "string" and "enum" in inner:
        checked |= {"enum"}
        found = {"type": "string", "enum": _choices(name, inner)}
    elif kind == "string" and inner.get("format", "email") in _FORMATS:
        checked |= {"format"}
        found = {"type": "string", **({"format": inner["format"]} if "format" in inner else {})}
    elif kind in ("number", "integer", "boolean"):
        found = {"type": kind}
    if found is None:
        raise bad(f"{name}: a field is text, a number, yes or no, or one or several of a list of texts")
    if not_checked := inner.keys() - checked - {"anyOf"}:
        raise bad(f"{name}: a form cannot check {', '.join(sorted(not_checked))}")
    return {**found, **limits, **told}


def _choices(name: str, inner: Mapping[str, Any]) -> list[str]:
    choices = list(inner["enum"])
    if not choices or not all(isinstance(one, str) and one for one in choices):
        raise bad(f"{name}: what can be chosen is text")
    return choices


def _resolved(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = field.get("$ref")
    if reference is None and len(field.get("allOf", ())) == 1:
        reference = field["allOf"][0].get("$ref")
    found: Mapping[str, Any] = field if reference is None else definitions[reference.rpartition("/")[2]]
    return found


def bad(what: str) -> InvalidInputError:
    """Return the error of a form."""
    return InvalidInputError("bad_handler", what)
