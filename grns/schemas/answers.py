"""The answers to requests in the AsyncAPI document: a task or a problem, sent to the reply subject.

The answer for a task that is too large for the broker is a reference to it. Mail is answered with its id.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from grns.model.events import Truncated
from grns.model.mail import Sent
from grns.model.problem import Problem
from grns.model.task import Task

Schema = dict[str, Any]

INBOX = "answers"
_SHAPES: dict[str, tuple[type[Any], str]] = {
    "answer.task": (Task, "application/json"),
    "answer.truncated": (Truncated, "application/json"),
    "answer.sent": (Sent, "application/json"),
    "answer.problem": (Problem, "application/problem+json"),
}
_HEADERS_NAME = "AnswerHeaders"
_PART = "#/components/schemas/{model}"
_HEADERS = {
    "Content-Type": "Tells a task from a problem.",
    "Grns-Answer": "With a task, or what stands in for it: created, exists (its key had its task), cancelled,"
    " requested (it runs), the status that it had ended with before, or repeated (the message had been"
    " handled). With the id of mail: sent.",
    "Nats-Service-Error": "With a problem: its code.",
    "Nats-Service-Error-Code": "With a problem: its status.",
}


class Untitled(GenerateJsonSchema):
    """Leaves out titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: fields have no title."""
        return False


def prose(shape: type[Any]) -> str:
    """Return the docstring of a class as one line."""
    return " ".join((shape.__doc__ or "").split())


def inbox() -> Schema:
    """Return the channel of all answers; each request has its own address."""
    return {
        "address": None,
        "description": "Where the sender of a request listens: the reply subject of the message, an inbox.",
        "messages": {key: {"$ref": f"#/components/messages/{key}"} for key in _SHAPES},
        "servers": [{"$ref": "#/servers/nats"}],
    }


def reply() -> Schema:
    """Return the reply of an operation."""
    return {
        "address": {
            "location": "$message.header#/reply",
            "description": "The reply subject of the message; NATS does not count it among the headers.",
        },
        "channel": {"$ref": f"#/channels/{INBOX}"},
        "messages": [{"$ref": f"#/channels/{INBOX}/messages/{key}"} for key in _SHAPES],
    }


def messages(schema_format: str) -> dict[str, Schema]:
    """Return the messages of answers."""
    return {
        key: {
            "name": shape.__name__,
            "title": shape.__name__,
            "summary": prose(shape),
            "contentType": content_type,
            "headers": {"$ref": _PART.format(model=_HEADERS_NAME)},
            "payload": {
                "schemaFormat": schema_format,
                "schema": {"$ref": _PART.format(model=shape.__name__)},
            },
        }
        for key, (shape, content_type) in _SHAPES.items()
    }


def schemas() -> dict[str, Schema]:
    """Return the schemas of these messages."""
    found: dict[str, Schema] = {_HEADERS_NAME: _headers()}
    for shape, _ in _SHAPES.values():
        adapter = TypeAdapter(shape)
        schema = adapter.json_schema(mode="serialization", ref_template=_PART, schema_generator=Untitled)
        found |= schema.pop("$defs", {})
        found[shape.__name__] = schema | {"description": prose(shape)}
    return {name: _distinct(name, schema) for name, schema in found.items()}


def _distinct(name: str, schema: Schema) -> Schema:
    """Return a schema that tells the two JSON answers from each other."""
    if name == Truncated.__name__:
        return schema | {"required": ["truncated", *schema["required"]]}
    return schema


def _headers() -> Schema:
    return {
        "type": "object",
        "description": "What grns sets on its answers.",
        "properties": {name: {"type": "string", "description": text} for name, text in _HEADERS.items()},
    }
