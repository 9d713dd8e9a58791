"""Tickets: what a claim is answered with, and nothing else, is one."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import uuid4

import pytest

from grns import ticket
from grns.errors import BadInput
from grns.ticket import Ticket
from tests.test_store_kit import forged

CANARY = "canary-7f3a"


def made(**changes: Any) -> Ticket:
    """Return a ticket of a claim."""
    fields = {
        "workspace": "acme", "agent_type": "worker", "agent_id": "worker-1", "lease_seconds": 60.0,
        "claimed_at": 1.5,
    }  # fmt: skip
    return Ticket.of(forged("gr-1", attempt=2), **{**fields, **changes})


def written(document: Any) -> str:
    """Return what somebody makes up, as a ticket looks."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return "t1." + base64.urlsafe_b64encode(text).decode().rstrip("=")


FIELDS: dict[str, Any] = json.loads(made().model_dump_json())


def test_a_ticket_is_what_was_handed_out() -> None:
    one = made()
    again = ticket.read(one.reveal())
    assert again == one
    claim = again.claim()
    assert (claim.id, claim.attempt, claim.lease_id) == ("gr-1", 2, one.lease_id)
    assert claim.counted_attempts == 2
    assert len(one.reveal()) < 1000


def test_a_ticket_shows_no_secret_where_it_is_printed() -> None:
    one = made()
    assert str(one.lease_id) not in repr(one)
    assert one.lease_id.hex not in repr(one)


def test_what_ends_an_attempt_is_known_again_by_its_id() -> None:
    one, other = made(), made()
    assert one.event_id("succeed") == ticket.read(one.reveal()).event_id("succeed")
    ids = {each.event_id(verb) for each in (one, other) for verb in ("succeed", "fail", "retry", "release")}
    assert len(ids) == 8


@pytest.mark.parametrize(
    "text",
    [
        "", "t1.", CANARY, f"t1.{CANARY}", "t2." + made().reveal()[3:], made().reveal() + "=",
        made().reveal()[:-7],
        "t1.A", "t1." + "A" * 3000, " " + made().reveal(), made().reveal() + "\n",
        written(b"\xff\xfe"), written(b"{"), written([]), written(None), written({}),
        written({**FIELDS, "more": CANARY}), written({**FIELDS, "attempt": -1}),
        written({**FIELDS, "attempt": "2"}),
        written({**FIELDS, "attempt": 2**31}), written({**FIELDS, "workspace": "a.b"}),
        written({**FIELDS, "lease_id": CANARY}), written({**FIELDS, "lease_seconds": 1e9}),
        written({**FIELDS, "task_id": "gr 1"}), written({**FIELDS, "causation_id": CANARY}),
        written({**FIELDS, "trace_id": "\x00"}),
        written(b'{"workspace": "acme", "workspace": "rival"}'),
        written(b"[" * 1400),
    ],
)  # fmt: skip
def test_what_is_no_ticket_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        ticket.read(text)
    assert refused.value.code == "bad_token"
    assert CANARY not in str(refused.value)


def test_somebody_who_makes_one_up_knows_no_lease() -> None:
    """It reads as one, and is another: the statements look at the lease."""
    assert ticket.read(written({**FIELDS, "lease_id": str(uuid4())})) != made()
