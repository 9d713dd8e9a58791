"""The grammar of subjects: what may stand in one, and that no two things share a name."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.events import PAYLOADS
from grns.model.subjects import (
    Parsed,
    agent_type,
    command_of,
    durable,
    message,
    parse,
    priority_subject,
    request,
    shared_execute,
    token,
    workspace_of,
)
from tests.support.bad_input import BAD_NAMES, Case

names = st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z")


@pytest.mark.parametrize("case", BAD_NAMES, ids=str)
def test_what_may_not_stand_in_a_subject_is_refused(case: Case) -> None:
    for check in (partial(token, name="workspace"), agent_type):
        with pytest.raises(InvalidInputError) as raised:
            check(case.value)
        assert raised.value.code == "bad_name"
        shown = str(raised.value)
        assert len(shown) < 250, "no more than 100 characters of it are shown"
        assert shown.isascii()
        assert shown.isprintable()


@pytest.mark.parametrize("value", [None, 5, True, b"worker", ["worker"], object])
def test_a_name_is_a_text(value: object) -> None:
    with pytest.raises(InvalidInputError, match="workspace"):
        token(value, name="workspace")


@given(names)
def test_a_good_name_is_itself(name: str) -> None:
    assert token(name, name="x") == name


def test_the_longest_name() -> None:
    assert token("x" * 64, name="x") == "x" * 64
    with pytest.raises(InvalidInputError):
        token("x" * 65, name="x")


def test_instance_is_no_agent_type() -> None:
    assert agent_type("instances") == "instances"
    with pytest.raises(InvalidInputError, match="reserved"):
        agent_type("instance")


def test_the_subjects_of_the_protocol() -> None:
    assert shared_execute() == "cmd.task.execute.v1"
    assert shared_execute("tenant") == "cmd.task.execute.v1.tenant"
    assert priority_subject("default", "worker", 0) == "cmd.task.execute.v1.default.worker.p0"
    assert message("evt.task.completed") == "evt.task.completed.v1"
    assert message("evt.task.completed", "tenant") == "evt.task.completed.v1.tenant"
    assert message("dlq.task.dead") == "dlq.task.dead.v1"
    assert message("dlq.message.rejected", "tenant") == "dlq.message.rejected.v1.tenant"
    assert message(subjects.EXECUTE, "default", "worker.p3") == priority_subject("default", "worker", 3)


def test_every_kind_has_a_stream() -> None:
    for kind in PAYLOADS:
        stream = subjects.STREAM_OF[kind.split(".")[0]]
        assert stream in (subjects.CMD_STREAM, subjects.EVT_STREAM, subjects.DLQ_STREAM)


@given(names, names, st.sampled_from(subjects.PRIORITIES))
def test_a_lane_is_no_front_door_and_taken_apart_again(workspace: str, agent: str, priority: int) -> None:
    subject = priority_subject(workspace, agent, priority)
    assert parse(subject) == Parsed(subjects.EXECUTE, "v1", (workspace, agent, f"p{priority}"))
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", subject)
    assert len(subject.split(".")) == 7
    assert subject != shared_execute(workspace)


@given(st.sampled_from(sorted(PAYLOADS)), names)
def test_a_message_is_taken_apart_again(kind: str, workspace: str) -> None:
    routing = () if workspace == subjects.DEFAULT_WORKSPACE else (workspace,)
    assert parse(message(kind, workspace)) == Parsed(kind, "v1", routing)


def test_a_version_that_is_not_known_is_named() -> None:
    assert parse("cmd.task.execute.v27.x").version == "v27"


@pytest.mark.parametrize(
    "subject", ["", "cmd", "cmd.task.execute", "cmd.task.execute.v", "v1", "a.v1", "a.b.v1x", "a.b.V1"]
)
def test_a_subject_without_a_version_is_refused(subject: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        parse(subject)
    assert raised.value.code == "bad_subject"


def test_a_subject_is_not_echoed_at_length() -> None:
    with pytest.raises(InvalidInputError) as raised:
        parse("\x1b[31m" + "x" * 5000)
    assert len(str(raised.value)) < 200
    assert "\x1b" not in str(raised.value)


# ---------------------------------------------------------------- requests


def test_the_subjects_of_requests() -> None:
    assert request(subjects.SUBMIT) == "req.task.submit.v1"
    assert request(subjects.CANCEL, "tenant") == "req.task.cancel.v1.tenant"
    assert subjects.request(subjects.SUBMIT).split(".")[0] not in subjects.STREAM_OF, (
        "no stream answers first"
    )


@given(st.sampled_from([subjects.SUBMIT, subjects.CANCEL]), names)
def test_a_request_stands_for_a_command(kind: str, workspace: str) -> None:
    command = message(kind, workspace)
    assert command_of(request(kind, workspace)) == command == command_of(command)
    assert workspace_of(command) == workspace


@pytest.mark.parametrize("case", BAD_NAMES, ids=str)
def test_a_subject_that_names_no_workspace(case: Case) -> None:
    with pytest.raises(InvalidInputError) as raised:
        workspace_of(f"cmd.task.submit.v1.{case.value}")
    assert raised.value.code == "bad_name"


@pytest.mark.parametrize(
    ("subject", "workspace"),
    [
        ("cmd.task.submit.v1", "default"),
        ("cmd.task.submit.v1.acme", "acme"),
        ("req.task.submit.v1.acme", "acme"),
        ("cmd.task.foo.v1.acme", "acme"),
        ("cmd.task.execute.v1.acme.worker.p0", "acme"),
        ("cmd.agent.worker.ping.v1.acme", "acme"),
        ("cmd.agent.worker.ping.v1", "default"),
        ("evt.agent.worker.done.v1.acme", "acme"),
        # These match the permissions of one workspace: no other may be read out of them.
        ("cmd.task.v1.v1.acme", "acme"),
        ("cmd.agent.v1.other.v1.acme", "acme"),
        ("cmd.agent.other.v2.v1.acme", "acme"),
        ("cmd.agent.instance.v1.v1.acme", "acme"),
        ("cmd.task.submit.v1.a:b", "_unknown"),
        ("cmd.task.submit.v1.", "_unknown"),
        ("cmd.task.submit.v1.*", "_unknown"),
        (f"cmd.task.submit.v1.{'x' * 65}", "_unknown"),
        ("cmd.task.submit", "default"),
        ("cmd", "default"),
        ("", "default"),
    ],
)
def test_owner_of_a_subject_is_the_word_after_the_version(subject: str, workspace: str) -> None:
    """M2: a rejected message is filed under the workspace that its subject names."""
    assert subjects.owner(subject) == workspace


# ---------------------------------------------------------------- durables


def test_durables_of_the_front_door_are_readable() -> None:
    assert durable("cmd.task.execute.v1") == "execute"
    assert durable("cmd.task.submit.v1") == "submit"
    assert durable("cmd.task.cancel.v1") == "cancel"


def test_what_may_be_asked_of_any_other_workspace_has_a_durable_of_its_own() -> None:
    assert durable("cmd.task.submit.v1.*") == "submit_workspaces"
    assert durable("cmd.task.cancel.v1.*") == "cancel_workspaces"


def test_joined_names_do_not_collide() -> None:
    tricky = [
        ("a_b", "c"),
        ("a", "b_c"),
        ("a-b", "c"),
        ("a", "b-c"),
        ("A", "b_c"),
        ("a", "c"),
        ("a_b_c", "p0"),
    ]
    found = {durable(priority_subject(workspace, agent, 0)) for workspace, agent in tricky}
    assert len(found) == len(tricky)


@given(names, names, st.sampled_from(subjects.PRIORITIES))
def test_a_durable_has_a_name_that_the_broker_takes(workspace: str, agent: str, priority: int) -> None:
    name = durable(priority_subject(workspace, agent, priority))
    assert re.fullmatch(r"execute_[0-9a-f]{16}", name)
    assert name == durable(priority_subject(workspace, agent, priority))
    assert durable(shared_execute("tenant")) not in (name, "execute")


def test_nudges_are_in_no_stream() -> None:
    for subject in (subjects.RELAY_NUDGE, subjects.lease_nudge("worker-1")):
        assert subject.split(".")[0] not in subjects.STREAM_OF
