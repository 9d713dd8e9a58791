"""Writes `schemas/`: a JSON Schema for each kind of message, and the AsyncAPI and OpenAPI documents.

They are generated from `grns/model` (events, envelope, subjects) and `grns/api`, docstrings included.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from grns.model import events as payloads
from grns.model import subjects
from grns.model.envelope import Envelope
from grns.model.output import Chunk
from grns.schemas import answers as export_answer
from grns.schemas.answers import Untitled
from grns.schemas.answers import prose as _prose

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI = "asyncapi.json"
OPENAPI = "openapi.json"
ENVELOPE = "envelope.schema.json"

_URN = "urn:grns:schema:"
_FORMAT = "application/schema+json;version=draft-2020-12"
_TOKEN = "[A-Za-z0-9_-]{1,64}"  # noqa: S105 - the grammar of a word in a subject
_PLACEHOLDER = re.compile(r"<([a-z_]+)>")
_REFERENCE = "#/$defs/{model}"
_OUTPUT = subjects.OUTPUT
_PARAMETERS = {
    "action": "What is asked for.",
    "agent_id": "One life of a worker process.",
    "agent_type": f"A type of agent; `{subjects.RESERVED_AGENT_TYPE}` is none.",
    "event": "What has happened.",
    "priority": "0 (critical) to 3 (background).",
    "task_id": "The id of a task.",
    "workspace": f"A workspace other than `{subjects.DEFAULT_WORKSPACE}`.",
}
HEADERS = {
    "Nats-Msg-Id": "The envelope's `message_id`: the broker stores the same one only once.",
    "traceparent": "W3C trace context, made of the envelope's `trace_id`.",
    "Grns-Workspace": "The workspace that the message belongs to.",
    "Grns-Task": "The task that it is about, where it is about one.",
    "Grns-Version": "The task's version: it grows by one with each transition.",
    "Grns-Seq": "The row of the log. It only identifies: gaps mean nothing.",
}


@cache
def documents() -> dict[str, str]:
    """Return the text of every file of `schemas/`, by its name."""
    found = {ENVELOPE: envelope_schema(), ASYNCAPI: asyncapi(), OPENAPI: openapi()}
    found |= {file_name(kind): kind_schema(kind) for kind in _models()}
    return {
        name: json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        for name, document in sorted(found.items())
    }


def stale(directory: Path) -> list[str]:
    """Return the files in `directory` that are missing, outdated or no longer generated."""
    wanted = documents()
    outdated = [name for name, text in wanted.items() if _read(directory / name) != text]
    left_over = [
        path.name for path in directory.glob("*.schema.json") if path.name not in wanted and _is_ours(path)
    ]
    return sorted({*outdated, *left_over})


def write(directory: Path) -> list[str]:
    """Bring `directory` up to date and return the files that have changed."""
    wanted = documents()
    changed = stale(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in wanted:
            (directory / name).write_text(wanted[name], encoding="utf-8")
        else:
            (directory / name).unlink()
    return changed


def file_name(kind: str) -> str:
    """Return the file name of one kind, without its placeholders."""
    words = [word for word in kind.split(".") if not _PLACEHOLDER.fullmatch(word)]
    return ".".join([*words, subjects.VERSION, "schema", "json"])


def envelope_schema() -> Schema:
    """Return the schema of messages of all kinds."""
    schema = _model_schema(Envelope)
    schema["properties"]["message_id"]["not"] = {"const": str(UUID(int=0))}
    # The model has a default; on the wire the field is required.
    schema["required"] = ["schema_version", *schema["required"]]
    return {"$schema": DIALECT, "$id": _identifier("envelope"), **schema}


def openapi() -> Schema:
    """Return the OpenAPI document of the HTTP API."""
    from grns.api.app import bare

    return bare().openapi()


def kind_schema(kind: str) -> Schema:
    """Return the schema of a whole message of one kind: its envelope with its payload."""
    models: list[type[BaseModel]] = [_models()[kind]]
    if not kind.startswith("cmd."):
        models.append(payloads.Truncated)
    schema = envelope_schema()
    schema |= {
        "$id": _identifier(kind),
        "title": kind,
        "description": _prose(_models()[kind]),
        "$defs": _definitions(models),
    }
    schema["properties"]["kind"] = _kind_property(kind)
    references = [{"$ref": _REFERENCE.format(model=model.__name__)} for model in models]
    schema["properties"]["payload"] = references[0] if len(references) == 1 else {"anyOf": references}
    return schema


def _models() -> dict[str, type[BaseModel]]:
    return payloads.PAYLOADS | payloads.PATTERNS


def _identifier(name: str) -> str:
    return _URN + re.sub(r"[<>]", "", name) + f":{subjects.VERSION}"


def _kind_property(kind: str) -> Schema:
    if not _PLACEHOLDER.search(kind):
        return {"const": kind}
    pattern = re.escape(kind).replace("<agent_type>", f"(?!{subjects.RESERVED_AGENT_TYPE}\\.)<agent_type>")
    return {"type": "string", "pattern": f"^{_PLACEHOLDER.sub(lambda _: _TOKEN, pattern)}$"}


def _definitions(models: list[type[BaseModel]]) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for model in models:
        schema = _model_schema(model)
        found |= schema.pop("$defs", {})
        found[model.__name__] = schema
    return found


def _model_schema(model: type[BaseModel]) -> Schema:
    schema = model.model_json_schema(ref_template=_REFERENCE, schema_generator=Untitled)
    for part in (schema, *schema.get("$defs", {}).values()):
        _refine(part)
    return schema


def _refine(schema: Schema) -> None:
    """Add the checks of the model that pydantic leaves out of the schema."""
    schema["description"] = " ".join(schema.get("description", "").split())
    for name, field in schema.get("properties", {}).items():
        for bound in ("ge", "le"):  # of an instant: JSON Schema has no such bounds
            field.pop(bound, None)
        if name in ("agent_type", "target_agent_type"):
            field["not"] = {"const": subjects.RESERVED_AGENT_TYPE}
    if schema.get("title") == payloads.Truncated.__name__:  # tells it from a payload
        schema["required"] = ["truncated", *schema["required"]]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def _is_ours(path: Path) -> bool:
    """Return whether an earlier version of this module wrote a file: other files are kept."""
    return f'"$id": "{_URN}' in (_read(path) or "")


# AsyncAPI


def asyncapi() -> Schema:
    """Return the AsyncAPI document, from the point of view of grns."""
    channels = dict(_channels())
    return {
        "asyncapi": "3.1.0",
        "info": {
            "title": "grns",
            "version": subjects.VERSION,
            "description": "Commands, events and dead letters of grns on NATS JetStream. "
            f"{_kept()} Delivery is at least once; `Grns-Version` orders the events of one task. "
            "A message has one envelope. Of two kinds it may have several, one JSON document a line: of "
            "commands on the priority subjects, which only workers of grns read, and, where "
            "`GRNS_RELAY_EVENTS_PER_MESSAGE` is above 1, of events. The headers are then those of the first "
            "line, and lines of events have `workspace`, `task_id`, `version` and `seq` beside the fields of "
            "the envelope. "
            "Requests are core NATS: answered, and kept by no stream. So is what handlers stream, which"
            f" `{subjects.OUT_STREAM}` keeps in memory for minutes.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "nats": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "description": "NATS with JetStream, 2.11 or later.",
            }
        },
        "channels": channels,
        "operations": _operations(channels),
        "components": {
            "messages": {_key(kind): _message(kind) for kind in _models()}
            | {_OUTPUT: _output()}
            | export_answer.messages(_FORMAT),
            "schemas": {"Headers": _headers(), "Chunk": _chunk_schema()} | export_answer.schemas(),
        },
    }


def _kept() -> str:
    """Return a sentence that names the streams and their subjects."""
    streams = [f"`{stream}` keeps `{word}.>`" for word, stream in subjects.STREAM_OF.items()]
    return f"The stream {', '.join(streams)}."


def _channels() -> list[tuple[str, Schema]]:
    execute, version = subjects.EXECUTE, subjects.VERSION
    found = [
        ("shared", _channel(execute, f"{execute}.{version}", "Any system may have a task run here.")),
        (
            "shared.workspace",
            _channel(
                execute,
                f"{execute}.{version}.{{workspace}}",
                "The shared execute subject of another workspace.",
            ),
        ),
        (
            "priority",
            _channel(
                execute,
                f"{execute}.{version}.{{workspace}}.{{agent_type}}.p{{priority}}",
                "What the relay sends to the workers of one agent type, by urgency. A message has up to"
                f" {subjects.MOST_ENVELOPES} commands, one JSON object a line.",
            ),
        ),
    ]
    for kind in _models():
        if kind == execute:
            continue
        address = _PLACEHOLDER.sub(r"{\1}", kind) + f".{version}"
        found.append((_key(kind), _channel(kind, address, _prose(_models()[kind]))))
        if not kind.startswith("cmd."):
            elsewhere = f"{_prose(_models()[kind])} In another workspace than the default one."
            found.append((f"{_key(kind)}.workspace", _channel(kind, f"{address}.{{workspace}}", elsewhere)))
    streamed = f"{_OUTPUT}.{{task_id}}.{version}"
    found += [
        (_OUTPUT, _channel(_OUTPUT, streamed, _prose(Chunk))),
        (f"{_OUTPUT}.workspace", _channel(_OUTPUT, f"{streamed}.{{workspace}}", _prose(Chunk))),
    ]
    return [*found, *_requests(), (export_answer.INBOX, export_answer.inbox())]


def _served() -> list[str]:
    """Return the kinds that grns receives as commands and as requests."""
    return [*subjects.SERVED, *(kind for kind in payloads.PATTERNS if kind.startswith("cmd."))]


def _requests() -> list[tuple[str, Schema]]:
    """Return the channels of requests, and of commands outside the default workspace."""
    any_workspace = "{workspace}"
    return [
        _request(kind, address)
        for kind in _served()
        for address in (
            subjects.message(kind, any_workspace),
            subjects.request(kind),
            subjects.request(kind, any_workspace),
        )
    ]


def _request(kind: str, subject: str) -> tuple[str, Schema]:
    description = _prose(_models()[kind])
    if "{workspace}" in subject:
        description += " In another workspace than the default one."
    if subject.startswith("req."):
        description += " A request: in no stream, and answered."
    key = _key(subject).replace(f".{subjects.VERSION}", "").replace("{workspace}", "workspace")
    return key, _channel(kind, _PLACEHOLDER.sub(r"{\1}", subject), description)


def _channel(kind: str, address: str, description: str) -> Schema:
    channel: Schema = {
        "address": address,
        "description": description,
        "messages": {_key(kind): {"$ref": f"#/components/messages/{_key(kind)}"}},
        "servers": [{"$ref": "#/servers/nats"}],
    }
    names = re.findall(r"\{([a-z_]+)\}", address)
    if names:
        channel["parameters"] = {name: _parameter(name) for name in names}
    return channel


def _parameter(name: str) -> Schema:
    if name == "priority":
        return {"description": _PARAMETERS[name], "enum": [str(number) for number in subjects.PRIORITIES]}
    return {"description": _PARAMETERS[name]}


def _operations(channels: dict[str, Schema]) -> Schema:
    """Return the operations of grns on each channel: it sends and receives on priority subjects.

    An answer is part of the operation of its request.
    """
    found: Schema = {}
    for key, channel in channels.items():
        for action in _actions(key):
            messages = [{"$ref": f"#/channels/{key}/messages/{name}"} for name in channel["messages"]]
            found[f"{action}.{key}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{key}"},
                "summary": channel["description"],
                "messages": messages,
            }
            if key.startswith("req."):
                found[f"{action}.{key}"]["reply"] = export_answer.reply()
    return found


def _actions(channel: str) -> list[str]:
    if channel == "priority":
        return ["receive", "send"]
    if channel.startswith(("shared", "req.", *map(_key, _served()))):
        return ["receive"]
    return [] if channel.startswith("evt.agent.") or channel == export_answer.INBOX else ["send"]


def _key(kind: str) -> str:
    return _PLACEHOLDER.sub(r"\1", kind)


def _message(kind: str) -> Schema:
    prose = _prose(_models()[kind])
    return {
        "name": kind,
        "title": kind,
        "summary": prose,
        "contentType": "application/json",
        "headers": {"$ref": "#/components/schemas/Headers"},
        "payload": {"schemaFormat": _FORMAT, "schema": {"$ref": f"./{file_name(kind)}"}},
    }


def _output() -> Schema:
    """Return the message of a chunk, which has no envelope."""
    return {
        "name": _OUTPUT,
        "title": _OUTPUT,
        "summary": _prose(Chunk),
        "contentType": "application/json",
        "payload": {"schemaFormat": _FORMAT, "schema": {"$ref": "#/components/schemas/Chunk"}},
    }


def _chunk_schema() -> Schema:
    return TypeAdapter(Chunk).json_schema(schema_generator=Untitled) | {"title": _OUTPUT}


def _headers() -> Schema:
    return {
        "type": "object",
        "description": "What grns sets on everything that it publishes. From others, none is needed.",
        "properties": {name: {"type": "string", "description": text} for name, text in HEADERS.items()},
    }
