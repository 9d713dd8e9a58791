"""Messages that belong to no task, sent again as they were, or mended."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from grns.errors import BadInput
from grns.letter import Copy, Mend, copy, mended
from grns.settings import load

LETTER = UUID("7dc6e5af-0776-4f37-8f16-5767f5f9471f")
HEADERS = {
    "Nats-Msg-Id": "m", "nats-expected-last-sequence": "7", "Nats-Rollup": "all", "Expected-Last": "1",
    "traceparent": "00-a-b-01", "Grns-Workspace": "default",
}  # fmt: skip
KEPT = {"traceparent": "00-a-b-01", "Grns-Workspace": "default"}


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


def mend(wanted: Mend, *, subject: str = "cmd.task.execute.v1", workspace: str = "default") -> Copy:
    """Mend a message that was no JSON."""
    return mended(
        LETTER, wanted, subject=subject, headers=HEADERS, body=b"{no json", workspace=workspace,
        limits=load().envelope_limits,
    )  # fmt: skip


def test_as_it_was_it_goes_without_what_the_broker_acts_on() -> None:
    wanted = copy(LETTER, subject="cmd.task.execute.v1", headers=HEADERS, body=b"{no json")
    assert (wanted.subject, wanted.headers, wanted.body) == ("cmd.task.execute.v1", KEPT, b"{no json")
    again = copy(LETTER, subject="cmd.task.execute.v1", headers=HEADERS, body=b"{no json")
    assert wanted.id == again.id, "tried twice, it is stored once"
    assert wanted.id != copy(uuid4(), subject="a", headers={}, body=b"").id


def test_a_request_that_nobody_waits_for_goes_as_a_command() -> None:
    asked, meant = "req.task.cancel.v1.acme", "cmd.task.cancel.v1.acme"
    assert copy(LETTER, subject=asked, headers={}, body=b"{}").subject == meant
    content = body("cmd.task.cancel")
    assert mend(Mend(body=content), subject=asked, workspace="acme").subject == meant


def test_mended_it_is_another_message() -> None:
    content = body()
    wanted = mend(Mend(body=content))
    assert (wanted.subject, wanted.headers, wanted.body) == ("cmd.task.execute.v1", KEPT, content)
    assert wanted.id == mend(Mend(body=content)).id
    assert wanted.id != mend(Mend(body=body())).id
    assert wanted.id != copy(LETTER, subject="a", headers={}, body=b"").id


def test_its_lane_and_headers_may_be_others() -> None:
    wanted = mend(
        Mend("cmd.task.execute.v1.default.worker.p0", {"Nats-Msg-Id": "x", "Why": "mended"}, body())
    )
    assert wanted.subject == "cmd.task.execute.v1.default.worker.p0"
    assert wanted.headers == {"Why": "mended"}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Mend(), "bad_json"),
        (Mend(body=b"{}"), "bad_envelope"),
        (Mend(body=body("evt.task.queued")), "kind_mismatch"),
        (Mend(body=body(task_id="a b")), "bad_payload"),
        (Mend("cmd.task.execute", body=body()), "bad_subject"),
        (Mend("cmd.task.execute.v1.other", body=body()), "bad_subject"),
        (Mend("cmd.task.execute.v1.default.>", body=body()), "bad_name"),
        (Mend("cmd.task.execute.v1 PUB evil", body=body()), "bad_subject"),
        (Mend(headers={"a:b": "c"}, body=body()), "bad_header"),
        (Mend(headers={"a": "b\r\nNats-Rollup: all"}, body=body()), "bad_header"),
        (Mend(headers={"": "b"}, body=body()), "bad_header"),
    ],
)
def test_what_nobody_could_accept_is_not_sent(wanted: Mend, code: str) -> None:
    with pytest.raises(BadInput) as caught:
        mend(wanted)
    assert caught.value.code == code


def test_it_cannot_be_mended_into_another_workspace() -> None:
    mine = mend(Mend("cmd.task.execute.v1.mine", body=body()), workspace="mine")
    assert mine.subject == "cmd.task.execute.v1.mine"
    with pytest.raises(BadInput, match="none of workspace mine"):
        mend(Mend(body=body()), workspace="mine")
    theirs = body("cmd.task.submit", task_type="noop", workspace="theirs")
    with pytest.raises(BadInput, match="belongs to mine"):
        mend(Mend("cmd.task.submit.v1.mine", body=theirs), workspace="mine")
