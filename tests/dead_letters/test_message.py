"""Messages that belong to no task, sent again as they were, or mended."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from grns.dead_letters.message import MessagePatch, ResentMessage, copy
from grns.errors import InvalidInputError
from grns.model import envelope
from grns.settings import load

LETTER = UUID("7dc6e5af-0776-4f37-8f16-5767f5f9471f")
HEADERS = {
    "Nats-Msg-Id": "m", "nats-expected-last-sequence": "7", "Nats-Rollup": "all", "Expected-Last": "1",
    "traceparent": "00-a-b-01", "Grns-Workspace": "other", "grns-task": "gr-other", "Grns-Version": "999",
    "Why": "x",
}  # fmt: skip


def body(kind: str = "cmd.task.execute", **payload: Any) -> bytes:
    """Return an envelope that anybody could accept."""
    said = {"task_id": "gr-0", "target_agent_type": "worker"} | payload
    return json.dumps(
        {
            "schema_version": "v1",
            "message_id": str(uuid4()),
            "trace_id": "tr-1",
            "causation_id": None,
            "kind": kind,
            "emitted_at": "2026-02-06T21:00:00Z",
            "payload": said,
        }
    ).encode()


def resend(
    mend: MessagePatch | None = None,
    *,
    kept: bytes = b"{no json",
    subject: str = "cmd.task.execute.v1",
    workspace: str = "default",
) -> ResentMessage:
    """Return the copy of a message of `subject`."""
    return copy(
        LETTER,
        mend,
        subject=subject,
        headers=HEADERS,
        body=kept,
        workspace=workspace,
        limits=load().envelope_limits,
    )


def sent(headers: dict[str, str], content: bytes, workspace: str = "default") -> dict[str, str]:
    """Return these headers with those that grns sets."""
    said = envelope.decode(content)
    trace = envelope.traceparent(said.trace_id, str(said.message_id))
    return headers | {"traceparent": trace, "Grns-Workspace": workspace, "Grns-Task": "gr-0"}


def test_copy_without_changes_has_the_headers_of_grns() -> None:
    """M1: `Grns-…`, `Nats-…` and `traceparent` say what grns knows, never what came."""
    content = body()
    wanted = resend(kept=content)
    assert (wanted.subject, wanted.body) == ("cmd.task.execute.v1", content)
    assert wanted.headers == sent({"Why": "x"}, content)
    assert wanted.id == resend(kept=content).id, "tried twice, it is stored once"
    assert wanted.id != resend(MessagePatch(body=content)).id


def test_copy_of_a_request_is_a_command() -> None:
    asked, meant = "req.task.cancel.v1.acme", "cmd.task.cancel.v1.acme"
    content = body("cmd.task.cancel")
    assert resend(kept=content, subject=asked, workspace="acme").subject == meant
    assert resend(MessagePatch(body=content), subject=asked, workspace="acme").subject == meant


def test_copy_with_a_change_has_another_id() -> None:
    content = body()
    wanted = resend(MessagePatch(body=content))
    assert (wanted.subject, wanted.body) == ("cmd.task.execute.v1", content)
    assert wanted.id == resend(MessagePatch(body=content)).id
    assert wanted.id != resend(MessagePatch(body=body())).id


def test_copy_with_headers_keeps_those_that_grns_does_not_set() -> None:
    """M1: a request cannot set the headers that subscribers believe."""
    content = body()
    wanted = resend(MessagePatch(headers=HEADERS | {"Why": "changed"}, body=content))
    assert wanted.headers == sent({"Why": "changed"}, content)


@pytest.mark.parametrize("subject", ["cmd.task.execute.v1.acme.worker.p0", "cmd.task.execute.v1.acme"])
def test_copy_from_a_priority_subject_goes_to_the_shared_subject(subject: str) -> None:
    """M1: only the relay publishes on priority subjects."""
    content = body()
    for mend in (None, MessagePatch(subject=subject), MessagePatch(headers={})):
        wanted = resend(mend, kept=content, subject=subject, workspace="acme")
        assert wanted.subject == "cmd.task.execute.v1.acme"


def test_copy_to_agents_keeps_its_subject() -> None:
    subject, content = "cmd.agent.worker.ping.v1.acme", body("cmd.agent.worker.ping")
    assert resend(kept=content, subject=subject, workspace="acme").subject == subject
    for other in ("cmd.agent.worker.pong.v1.acme", "cmd.agent.instance.w-1.v1.acme"):
        kind = other.removesuffix(".v1.acme")
        with pytest.raises(InvalidInputError, match="cannot be sent again on"):
            resend(
                MessagePatch(other, body=body(kind, action="x")),
                kept=content,
                subject=subject,
                workspace="acme",
            )
    with pytest.raises(InvalidInputError, match="names another kind"):
        resend(MessagePatch(body=body("cmd.agent.worker.pong")), subject=subject, workspace="acme")


@pytest.mark.parametrize(
    "subject",
    [
        "cmd.agent.worker.ping.v1.acme",
        "cmd.agent.instance.someagent.v1.acme",
        "evt.task.completed.v1.acme",
        "evt.key.revoked.v1.acme",
        "dlq.task.dead.v1.acme",
        "cmd.task.execute.v1.acme.worker.p0",
        "cmd.task.submit.v1",
        "cmd.task.submit.v1.other",
        "req.task.submit.v1.acme",
        "$JS.API.v1.acme",
    ],
)
def test_copy_on_another_subject_is_refused(subject: str) -> None:
    """M1: a submit that was rejected cannot become an event, an agent's command or a priority command."""
    kind = subject.partition(".v1")[0]
    with pytest.raises(InvalidInputError) as caught:
        resend(MessagePatch(subject, body=body(kind)), subject="cmd.task.submit.v1.acme", workspace="acme")
    assert caught.value.code == "bad_subject"


@pytest.mark.parametrize(
    "subject", ["evt.task.completed.v1.acme", "dlq.task.dead.v1.acme", "cmd.task.execute.v1"]
)
def test_copy_of_another_workspace_or_of_an_event_is_refused(subject: str) -> None:
    """M1, M2: a message goes through the same check if nothing in it is changed."""
    for mend in (None, MessagePatch(headers={}), MessagePatch("cmd.task.execute.v1.acme", body=body())):
        with pytest.raises(InvalidInputError) as caught:
            resend(mend, kept=body(subject.partition(".v1")[0]), subject=subject, workspace="acme")
        assert caught.value.code == "bad_subject"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (None, "bad_json"),
        (MessagePatch(), "bad_json"),
        (MessagePatch(body=b"{}"), "bad_envelope"),
        (MessagePatch(body=body("evt.task.queued")), "kind_mismatch"),
        (MessagePatch(body=body(task_id="a b")), "bad_payload"),
        (MessagePatch("cmd.task.execute", body=body()), "bad_subject"),
        (MessagePatch("cmd.task.execute.v1.default.>", body=body()), "bad_subject"),
        (MessagePatch("cmd.task.execute.v1 PUB evil", body=body()), "bad_subject"),
        (MessagePatch(headers={"a:b": "c"}, body=body()), "bad_header"),
        (MessagePatch(headers={"a": "b\r\nNats-Rollup: all"}, body=body()), "bad_header"),
        (MessagePatch(headers={"": "b"}, body=body()), "bad_header"),
    ],
)
def test_copy_that_would_be_rejected_again_is_refused(wanted: MessagePatch | None, code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        resend(wanted)
    assert caught.value.code == code


def test_copy_of_a_submission_stays_in_its_workspace() -> None:
    subject, said = "cmd.task.submit.v1.mine", {"task_type": "noop"}
    for named in ({}, {"workspace": "mine"}):
        content = body("cmd.task.submit", **said, **named)
        assert resend(MessagePatch(body=content), subject=subject, workspace="mine").subject == subject
    theirs = body("cmd.task.submit", **said, workspace="theirs")
    for mend, kept in ((None, theirs), (MessagePatch(body=theirs), b"{no json")):
        with pytest.raises(InvalidInputError, match="belongs to workspace mine"):
            resend(mend, kept=kept, subject=subject, workspace="mine")
