"""The page of all messages, from the schemas that `grns admin schema export` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from grns.schemas import export
from tests.site.text import GENERATED, code, table

_INTRODUCTION = """
Each message is a JSON document: an envelope with a payload that depends on the kind. `schemas/` has a JSON
Schema (draft 2020-12) per kind, and `asyncapi.json` (AsyncAPI 3.1) describes all kinds with their headers,
streams and senders. With them, a program in any language can check what it sends and receives ([other
languages](../languages.md)).

A subject is the kind and its version: `evt.task.completed.v1`. For workspaces other than `default`, the
workspace is appended: `evt.task.completed.v1.acme`. With `GRNS_NATS_NAMESPACE=staging`, all subjects begin
with `staging_`. Commands for workers end in the pool and priority. Several of them may share a message, one
document a line; events do so only if you [turn it on](../events.md#any-nats-client). Ignore fields that you
do not know. A payload that is too large for the broker is sent as `truncated`, with a reference.

"""
_GROUPS = (
    ("cmd", "Commands", "`GRNS_CMD` keeps a command until it is acknowledged."),
    ("evt", "Events", "`GRNS_EVT` keeps events; `Grns-Version` orders the events of one task."),
    ("dlq", "Dead letters", "`GRNS_DLQ` has copies; Postgres has the originals."),
)


def page() -> str:
    """Return the page."""
    documents = {name: json.loads(text) for name, text in export.documents().items()}
    described = documents[export.ASYNCAPI]
    parts = [
        f"# Messages\n\n{GENERATED}{_INTRODUCTION}",
        "## The envelope\n\n",
        documents[export.ENVELOPE]["description"] + "\n\n",
        _fields(documents[export.ENVELOPE]),
        "\n## Headers\n\n",
        table(("header", "means"), [(code(name), export.HEADERS[name]) for name in sorted(export.HEADERS)]),
    ]
    for beginning, title, said in _GROUPS:
        parts.append(f"\n## {title}\n\n{said}\n")
        for name, document in sorted(documents.items()):
            if name.startswith(beginning + "."):
                parts += _kind(document, described["channels"])
    return "".join(parts)


def _kind(document: dict[str, Any], channels: dict[str, Any]) -> Iterator[str]:
    name = document["$id"].split(":")[-2]
    subjects = [
        code(one["address"])
        for key, one in channels.items()
        if name in one["messages"] and not key.endswith(".workspace")
    ]
    yield f"\n### {code(document['title'])}\n\n{document['description']}\n\nOn {', '.join(subjects)}.\n"
    payload = document["properties"]["payload"]
    references = [one["$ref"] for one in payload.get("anyOf", [payload]) if "$ref" in one]
    for reference in references:
        model = document["$defs"][reference.rsplit("/", 1)[-1]]
        if model["title"] != "Truncated" and model["properties"]:
            yield "\n" + _fields(model, document["$defs"])


def _fields(model: dict[str, Any], known: dict[str, Any] | None = None) -> str:
    required = set(model.get("required", ()))
    rows = [
        (code(name), _type(field, known or {}), "yes" if name in required else "")
        for name, field in model["properties"].items()
    ]
    return table(("field", "type", "always there"), rows)


def _type(field: dict[str, Any], known: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(one, known) for one in field["anyOf"])
    if "$ref" in field:
        return _type(known.get(field["$ref"].rsplit("/", 1)[-1], {"type": "object"}), known)
    if "const" in field:
        return code(json.dumps(field["const"]))
    if "enum" in field:
        return ", ".join(code(json.dumps(one)) for one in field["enum"])
    if field.get("type") == "array":
        return "list of " + _type(field.get("items", {}), known)
    return str(field.get("format", field.get("type", "any JSON")))
