"""The generated schemas: valid by themselves, true to the models, and in step with `schemas/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]

from grns.errors import NotFoundError, RejectedError
from grns.gateway.server import COMMANDS, REQUESTS
from grns.model import events as payloads
from grns.model import problem, subjects
from grns.model.envelope import assemble, decode, encode
from grns.model.mail import Sent
from grns.model.task import Task, TaskStatus
from grns.schemas import export
from grns.settings import load
from tests.support import bad_input
from tests.support.harness import ROOT

DOCUMENTS: dict[str, dict[str, Any]] = {name: json.loads(text) for name, text in export.documents().items()}
SCHEMAS = {name: document for name, document in DOCUMENTS.items() if name.endswith(".schema.json")}
ASYNCAPI = DOCUMENTS[export.ASYNCAPI]
NOW = datetime(2026, 2, 6, 21, 0, 0, 123456, tzinfo=UTC)
ERROR = {"class": "ValueError", "message": "no"}
DEAD = {"task_id": "t1", "attempt": 3, "max_attempts": 3, "error": ERROR, "error_class": "ValueError"}
FAILED = {"task_id": "t1", "agent_id": "worker-1", "attempt": 1, "error": ERROR, "error_class": "ValueError"}
TASK = {"task_type": "fetch_page", "payload": {"url": "https://example.org"}, "fingerprint": None}
ACTOR = {"actor": "cli:ann@desk"}
OPERATION = ACTOR | {"operation_id": "op-1", "action": "redrive", "state": "running"}
COUNTS = {"moved": 5, "skipped": 1, "failed_again": 1}
LETTER = ACTOR | {"dead_letter_id": str(uuid4()), "reason": "bad_json", "subject": "cmd.task.execute.v1"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "cmd.task.execute": {"task_id": "t1", "target_agent_type": "worker", "reason": "new_task"},
    "cmd.task.submit": {"task_type": "fetch_page", "payload": {}, "priority": 1},
    "cmd.task.cancel": {"task_id": "t1", "reason": None},
    "cmd.task.signal": {"task_id": "t1", "name": "approved", "value": {"by": "ann"}},
    "cmd.agent.instance.worker-1": {"action": "drain"},
    "cmd.agent.crawler.refresh": {"anything": [1, None]},
    "evt.agent.crawler.refreshed": {},
    "evt.message.sent": ACTOR | {"message_id": str(uuid4()), "type": "hello", "agents": 1, "payload": {}},
    "evt.task.queued": {
        "task_id": "t1",
        "task_type": "fetch_page",
        "agent_type": "worker",
        "priority": 2,
        "reason": "new_task",
    },
    "evt.task.waiting": {
        "task_id": "t1",
        "task_type": "fetch_page",
        "agent_type": "worker",
        "priority": 2,
        "next_attempt_at": "2026-02-06T21:00:00Z",
    },
    "evt.attempt.progressed": {
        "task_id": "t1",
        "agent_id": "worker-1",
        "attempt": 1,
        "progress_percent": 40,
        "current_step": "reads",
    },
    "evt.attempt.overdue": {
        "task_id": "t1",
        "agent_id": "worker-1",
        "attempt": 1,
        "estimated_completion_at": "2026-02-06T21:00:00Z",
    },
    "evt.question.asked": {
        "task_id": "t1",
        "question_id": str(uuid4()),
        "kind": "approval",
        "title": "Pay?",
        "asked_of": ["role:finance"],
        "digest": "0" * 64,
    },
    "evt.question.answered": ACTOR
    | {
        "task_id": "t1",
        "question_id": str(uuid4()),
        "title": "Pay?",
        "digest": "0" * 64,
        "answer": {"approved": True},
    },
    "evt.question.linked": ACTOR
    | {"task_id": "t1", "question_id": str(uuid4()), "title": "Pay?", "until": "2026-02-06T21:00:00Z"},
    "evt.question.expired": {"task_id": "t1", "question_id": str(uuid4()), "title": "Pay?"},
    "evt.task.claimed": {
        "task_id": "t1",
        "agent_id": "worker-1",
        "attempt": 1,
        "lease_until": "2026-02-06T21:00:00Z",
    },
    "evt.task.completed": {
        "task_id": "t1",
        "agent_id": "worker-1",
        "attempt": 1,
        "result_ref": "db://tasks/t1",
        "duration_ms": 12,
    },
    "evt.task.failed": FAILED,
    "evt.task.retry_scheduled": {
        "task_id": "t1",
        "attempt": 1,
        "next_attempt_at": "2026-02-06T21:00:00Z",
        "backoff_ms": 1000,
        "error_class": "ValueError",
    },
    **{
        f"evt.schedule.{word}": {
            "schedule": "daily",
            "when": "0 9 * * *",
            "task_type": "noop",
            "agent_type": "worker",
        }
        for word in ("created", "changed", "paused", "resumed", "deleted")
    },
    **{
        f"evt.limit.{word}": ACTOR | {"limit": "tenant", "max_tasks": 5, "rate": "500/1m", "burst": 10}
        for word in ("created", "changed", "paused", "resumed", "deleted")
    },
    **{
        f"evt.schedule.{word}": {
            "schedule": "daily",
            "due_at": "2026-01-31T09:00:00Z",
            "task_type": "noop",
            "agent_type": "worker",
            "task_id": "gr-1",
        }
        for word in ("submitted", "skipped", "missed")
    },
    **{
        f"evt.workflow.{word}": {
            "workflow_id": "wf-1",
            "name": "report",
            "status": status,
            "total": 3,
            "succeeded": 2,
            "failed": 1,
            "escalation_task_id": "gr-1",
        }
        for word, status in (
            ("started", "running"),
            ("sealed", "running"),
            ("succeeded", "succeeded"),
            ("failed", "failed"),
            ("cancelled", "cancelled"),
            ("reopened", "running"),
            ("threshold", "running"),
            ("paused", "running"),
            ("resumed", "running"),
            ("cancel_requested", "running"),
            ("redriven", "failed"),
        )
    },
    "evt.workflow.extended": {"workflow_id": "wf-1", "name": "report", "added": 2},
    "evt.task.snoozed": {
        "task_id": "t1",
        "agent_id": "worker-1",
        "attempt": 1,
        "next_attempt_at": "2026-02-06T21:00:00Z",
    },
    "evt.task.lease_expired": {
        "task_id": "t1",
        "agent_id": "worker-1",
        "attempt": 1,
        "lease_until": "2026-02-06T21:00:00Z",
    },
    "evt.task.released": {"task_id": "t1", "agent_id": "worker-1", "attempt": 1, "reason": "shutdown"},
    "evt.task.dead": DEAD,
    "evt.task.cancelled": {"task_id": "t1", "attempt": 0, "reason": None},
    "evt.task.changed": ACTOR | {"task_id": "t1", "fields": ["priority"], "priority": 0},
    "evt.task.signaled": ACTOR
    | {"task_id": "t1", "name": "approved", "signal_id": "7dc6e5af-0776-4f37-8f16-5767f5f9471f"},
    "evt.task.discarded": ACTOR | {"task_id": "t1", "status": "dead", "fingerprint": "0f0f"},
    "evt.task.restored": ACTOR
    | {
        "task_id": "t1",
        "status": "succeeded",
        "archive": "tasks/2026-02-06/gr-1~gr-9~0f0f0f0f",
        "kept_until": "2026-03-08T21:00:00Z",
    },
    "evt.pool.paused": ACTOR | {"agent_type": "crawler", "until": "2026-02-06T21:00:00Z"},
    "evt.pool.quota_changed": ACTOR | {"agent_type": "crawler", "max_queued": 1000},
    "evt.pool.follow_ups_changed": ACTOR
    | {"agent_type": "crawler", "follow_ups": ["fetch_page success crawler/index_page"]},
    "evt.budget.changed": ACTOR | {"name": "writing", "change": "allowed", "cost": 50.0},
    "evt.budget.exceeded": {
        "name": "writing",
        "agent_type": "writers",
        "period": "month",
        "action": "ask",
        "begins_on": "2026-02-01",
        "used_cost": 200.5,
        "used_tokens": 12_000,
        "max_cost": 200.0,
    },
    "evt.pool.resumed": ACTOR | {"agent_type": "crawler", "task_type": "fetch_page"},
    "evt.secret.revealed": ACTOR | {"task_id": "t1", "reason": "ticket 4711"},
    "evt.key.created": ACTOR | {"key_id": "7f3a", "name": "ci", "scopes": ["read"]},
    "evt.key.revoked": ACTOR | {"key_id": "7f3a", "name": "ci"},
    "evt.workspace.created": ACTOR | {"workspace": "acme"},
    "evt.token_key.rotated": ACTOR | {"number": 2},
    "evt.filter.saved": ACTOR | {"name": "flaky", "text": "error:Timeout*"},
    "evt.filter.deleted": ACTOR | {"name": "flaky", "text": "error:Timeout*"},
    "evt.issue.changed": {
        "fingerprint": "0f0f",
        "state": "regressed",
        "was": "resolved",
        "error_class": "ValueError",
        "sample_task_id": "t1",
    },
    "evt.operation.created": OPERATION | {"filter": "status:dead", "matched": 7},
    "evt.operation.changed": OPERATION | COUNTS | {"was": "paused"},
    "evt.operation.ended": OPERATION | COUNTS,
    "evt.dead_letter.resent": LETTER,
    "evt.dead_letter.discarded": LETTER,
    "evt.dead_letter.expired": LETTER | {"body_size": 9, "body_sha256": "0" * 64},
    "evt.webhook.created": ACTOR | {"webhook_id": "w1", "kinds": ["evt.task.dead"]},
    "evt.webhook.changed": ACTOR | {"webhook_id": "w1", "kinds": [], "is_enabled": False},
    "evt.webhook.deleted": ACTOR | {"webhook_id": "w1", "kinds": []},
    "evt.webhook.pinged": ACTOR | {"webhook_id": "w1", "kinds": ["evt.task.dead"]},
    "evt.webhook.resent": ACTOR
    | {"webhook_id": "w1", "kinds": [], "message_id": "7dc6e5af-0776-4f37-8f16-5767f5f9471f"},
    "dlq.task.dead": DEAD | TASK,
    "dlq.task.failed": FAILED | TASK,
    "dlq.message.rejected": {
        "reason": "bad_json",
        "subject": "cmd.task.execute.v1",
        "headers": {},
        "body_base64": "e30=",
        "body_size": 2,
        "body_sha256": "0" * 64,
    },
}


def message(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return a message as grns writes it."""
    body = assemble(
        message_id=str(uuid4()),
        trace_id="tr-1",
        causation_id=None,
        kind=kind,
        emitted_at=NOW,
        payload=json.dumps(payload),
    )
    said: dict[str, Any] = json.loads(body)
    return said


def schema_of(kind: str) -> dict[str, Any]:
    """Return the only schema whose `kind` is this one."""
    found = [
        schema
        for name, schema in SCHEMAS.items()
        if name != export.ENVELOPE and _is_of(schema["properties"]["kind"], kind)
    ]
    assert len(found) == 1, (kind, [schema["title"] for schema in found])
    return found[0]


def _is_of(rule: dict[str, Any], kind: str) -> bool:
    return bool(rule.get("const") == kind or ("pattern" in rule and re.search(rule["pattern"], kind)))


# ---------------------------------------------------------------- JSON Schema


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_valid_json_schema(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == export.DIALECT
    for reference in references(schema):
        assert resolved(schema, reference) is not None, reference


def test_each_schema_has_a_name_of_its_own() -> None:
    assert len({schema["$id"] for schema in SCHEMAS.values()}) == len(SCHEMAS)
    assert len(SCHEMAS) == len(payloads.PAYLOADS) + len(payloads.PATTERNS) + 1


def test_there_is_an_example_of_every_kind() -> None:
    assert {schema_of(kind)["title"] for kind in EXAMPLES} == {*payloads.PAYLOADS, *payloads.PATTERNS}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_example_matches_its_schema(kind: str) -> None:
    payload = payloads.model_of(kind).model_validate(EXAMPLES[kind])
    said = message(kind, payload.model_dump(mode="json", by_alias=True))
    for schema in (schema_of(kind), SCHEMAS[export.ENVELOPE]):
        Draft202012Validator(schema).validate(said)


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if not kind.startswith("cmd.")])
def test_truncated_message_matches_its_schema(kind: str) -> None:
    stand_in = payloads.Truncated(ref="db://tasks/t1", task_id="t1").model_dump(mode="json")
    Draft202012Validator(schema_of(kind)).validate(message(kind, stand_in))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_missing_field_violates_the_schema(kind: str) -> None:
    schema = schema_of(kind)
    whole = message(kind, EXAMPLES[kind])
    for name in schema["required"]:
        part = {key: value for key, value in whole.items() if key != name}
        with pytest.raises(ValidationError):
            Draft202012Validator(schema).validate(part)


def test_the_schema_is_no_stricter_than_the_decoder() -> None:
    """Whoever validates before sending must not refuse what grns accepts."""
    schema = Draft202012Validator(schema_of("cmd.task.execute"))
    limits = load().envelope_limits
    for case in bad_input.ENVELOPES + bad_input.PAYLOADS:
        body = bad_input.encoded(case.value)
        try:
            payloads.read(decode(body, limits=limits))
        except RejectedError:
            continue
        schema.validate(json.loads(body))


def test_a_message_read_and_written_again_still_fits() -> None:
    said = message("evt.task.completed", EXAMPLES["evt.task.completed"])
    again = json.loads(encode(decode(json.dumps(said).encode(), limits=load().envelope_limits)))
    Draft202012Validator(schema_of("evt.task.completed")).validate(again)
    assert UUID(again["message_id"]) == UUID(said["message_id"])


# ---------------------------------------------------------------- AsyncAPI


def references(node: Any) -> Iterator[str]:
    """Yield every `$ref` below a node."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def resolved(document: dict[str, Any], reference: str) -> Any:
    """Return what a reference names: a part of the document, or a file beside it."""
    if reference.startswith("./"):
        return DOCUMENTS.get(reference.removeprefix("./"))
    found: Any = document
    for word in reference.removeprefix("#/").split("/"):
        found = found[word.replace("~1", "/").replace("~0", "~")]
    return found


def test_the_document_has_the_shape_of_asyncapi() -> None:
    assert ASYNCAPI["asyncapi"] == "3.1.0"
    assert {"title", "version"} <= ASYNCAPI["info"].keys()
    assert set(ASYNCAPI) <= {
        *("asyncapi", "id", "info", "servers", "defaultContentType", "channels", "operations", "components")
    }
    for server in ASYNCAPI["servers"].values():
        assert {"host", "protocol"} <= server.keys()
    for section in ("servers", "channels", "operations"):
        assert ASYNCAPI[section]
    for section in ASYNCAPI["components"].values():
        for key in section:
            assert re.fullmatch(r"[a-zA-Z0-9.\-_]+", key), key


def test_every_reference_resolves() -> None:
    found = list(references(ASYNCAPI))
    assert len(found) > 100
    for reference in found:
        assert resolved(ASYNCAPI, reference) is not None, reference


def test_every_channel_declares_what_its_address_names() -> None:
    addresses = [channel["address"] for channel in ASYNCAPI["channels"].values()]
    assert len(set(addresses)) == len(addresses)
    for channel in ASYNCAPI["channels"].values():
        named = set(re.findall(r"\{(\w+)\}", channel["address"] or ""))  # an inbox has none of its own
        assert set(channel.get("parameters", {})) == named
        for parameter in channel.get("parameters", {}).values():
            assert set(parameter) <= {"enum", "default", "description", "examples", "location"}
        assert channel["messages"]


def test_every_operation_is_about_messages_of_its_channel() -> None:
    for operation in ASYNCAPI["operations"].values():
        assert operation["action"] in ("send", "receive")
        channel = resolved(ASYNCAPI, operation["channel"]["$ref"])
        assert channel["address"] is not None, "an answer belongs to what it answers"
        for reference in operation["messages"]:
            place = operation["channel"]["$ref"] + "/messages/"
            assert reference["$ref"].startswith(place)
            assert reference["$ref"].removeprefix(place) in channel["messages"]


def test_every_message_has_its_schema() -> None:
    for message_ in ASYNCAPI["components"]["messages"].values():
        payload = message_["payload"]
        assert "draft-2020-12" in payload["schemaFormat"]
        assert resolved(ASYNCAPI, payload["schema"]["$ref"])["title"] == message_["name"]


def test_addresses_are_the_subjects_of_the_code() -> None:
    addresses = {channel["address"] for channel in ASYNCAPI["channels"].values()}
    assert subjects.shared_execute() in addresses
    lane = "cmd.task.execute.v1.{workspace}.{agent_type}.p{priority}"
    assert lane in addresses
    assert subjects.priority_subject("acme", "crawler", 0) == lane.format(
        workspace="acme", agent_type="crawler", priority=0
    )
    for kind in payloads.PAYLOADS:
        assert subjects.message(kind, subjects.DEFAULT_WORKSPACE) in addresses
    matched = {
        subject: [address for address in addresses if address and _is_matched(subject, address)]
        for subject in (*COMMANDS, *REQUESTS)
    }
    assert {len(found) for subject, found in matched.items() if "agent" not in subject} == {1}
    assert {len(found) for subject, found in matched.items() if "agent" in subject} == {2}, "one, or any of"


def _is_matched(subject: str, address: str) -> bool:
    """Return whether a subject with `*` stands for an address with `{name}`."""
    said, shown = subject.split("."), address.split(".")
    return len(said) == len(shown) and all(
        one == other if one != subjects.OTHER_WORKSPACES else other.startswith("{") or said[1] == "agent"
        for one, other in zip(said, shown, strict=True)
    )


def test_every_request_is_answered_with_a_task_or_what_stands_in_for_it_or_a_problem() -> None:
    asked = {name: one for name, one in ASYNCAPI["operations"].items() if ".req." in name}
    assert len(asked) == len(REQUESTS) + 2, "agents have two channels: any of a type, and one of them"
    for operation in asked.values():
        assert operation["action"] == "receive"
        reply = operation["reply"]
        assert resolved(ASYNCAPI, reply["channel"]["$ref"])["address"] is None
        messages = [resolved(ASYNCAPI, resolved(ASYNCAPI, one["$ref"])["$ref"]) for one in reply["messages"]]
        assert [message["name"] for message in messages] == ["Task", "Truncated", "Sent", "Problem"]


def test_answer_matches_exactly_one_schema() -> None:
    task = Task("gr-1", "default", "noop", "worker", 2, TaskStatus.QUEUED, 0, None, 0, 1, "tr-1", NOW, NOW)
    stub = payloads.Truncated(ref="db://tasks/gr-1", task_id="gr-1")
    refusal = problem.of(NotFoundError("there is no task gr-1"))
    answers: dict[str, bytes | str] = {
        "Task": orjson.dumps(task, option=orjson.OPT_UTC_Z),
        "Truncated": stub.model_dump_json(),
        "Sent": orjson.dumps(Sent(uuid4())),
        "Problem": orjson.dumps(refusal),
    }
    for name in answers:
        schema = {"$ref": f"#/components/schemas/{name}", "components": ASYNCAPI["components"]}
        fits = [
            each for each, said in answers.items() if Draft202012Validator(schema).is_valid(json.loads(said))
        ]
        assert fits == [name]
        assert ASYNCAPI["components"]["schemas"][name]["title"] == name


def test_the_streams_are_named() -> None:
    for word, stream in subjects.STREAM_OF.items():
        assert f"`{stream}` keeps `{word}.>`" in ASYNCAPI["info"]["description"]


# ---------------------------------------------------------------- the files


def test_committed_files_are_up_to_date() -> None:
    assert export.stale(ROOT / "schemas") == []


def test_write_updates_stale_files_and_keeps_other_files(tmp_path: Path) -> None:
    assert set(export.write(tmp_path)) == set(DOCUMENTS)
    assert export.write(tmp_path) == []
    (tmp_path / export.ENVELOPE).write_text("{}")
    (tmp_path / export.ASYNCAPI).unlink()
    ours, stranger = tmp_path / "evt.gone.v1.schema.json", tmp_path / "mine.schema.json"
    ours.write_text('{"$id": "urn:grns:schema:evt.gone:v1"}')
    stranger.write_text('{"$id": "urn:mine"}')
    assert export.stale(tmp_path) == sorted([export.ENVELOPE, export.ASYNCAPI, ours.name])
    export.write(tmp_path)
    assert export.stale(tmp_path) == []
    assert stranger.exists()
    assert not ours.exists()
