"""Tickets: what a claim is answered with, and nothing else, is one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from grns.errors import InvalidInputError
from grns.model import claim_token as ticket
from grns.model.claim_token import ClaimToken, SigningKey
from tests.support.store import forged

CANARY = "canary-7f3a"


def made(**changes: Any) -> ClaimToken:
    """Return a ticket of a claim."""
    fields = {
        "workspace": "acme", "agent_type": "worker", "agent_id": "worker-1", "lease_seconds": 60.0,
        "claimed_at": 1.5,
    }  # fmt: skip
    return ClaimToken.of(forged("gr-1", attempt=2), **{**fields, **changes})


KEY, OTHER = SigningKey(1, bytes(32)), SigningKey(2, bytes(range(32)))


def written(document: Any, key: SigningKey = KEY) -> str:
    """Return a token of a document, signed with a key: as one who has the secret could write it."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    signed = key.id.to_bytes(4, "big") + key.sign(text) + text
    return "t1." + base64.urlsafe_b64encode(signed).decode().rstrip("=")


def taken(text: str, key: SigningKey | None = KEY) -> ClaimToken:
    """Return what a token says, if a key signed it."""
    return ticket.read(text).verify(key)


FIELDS: dict[str, Any] = json.loads(made().model_dump_json())


def test_a_ticket_is_what_was_handed_out() -> None:
    one = made()
    again = taken(one.reveal(KEY))
    assert again == one
    claim = again.claim()
    assert (claim.id, claim.attempt, claim.lease_id) == ("gr-1", 2, one.lease_id)
    assert claim.counted_attempts == 2
    assert len(one.reveal(KEY)) < 1000


def test_a_ticket_shows_no_secret_where_it_is_printed() -> None:
    one = made()
    assert str(one.lease_id) not in repr(one)
    assert one.lease_id.hex not in repr(one)


def test_what_ends_an_attempt_is_known_again_by_its_id() -> None:
    one, other = made(), made()
    assert one.event_id("succeed") == taken(one.reveal(KEY)).event_id("succeed")
    ids = {each.event_id(verb) for each in (one, other) for verb in ("succeed", "fail", "retry", "release")}
    assert len(ids) == 8


@pytest.mark.parametrize(
    "text",
    [
        "", "t1.", CANARY, f"t1.{CANARY}", "t2." + made().reveal(KEY)[3:], made().reveal(KEY) + "=",
        made().reveal(KEY)[:-7],
        "t1.A", "t1." + "A" * 3000, " " + made().reveal(KEY), made().reveal(KEY) + "\n",
        written(b"\xff\xfe"), written(b"{"), written([]), written(None), written({}),
        written({**FIELDS, "more": CANARY}), written({**FIELDS, "attempt": -1}),
        written({**FIELDS, "attempt": "2"}),
        written({**FIELDS, "attempt": 2**31}), written({**FIELDS, "workspace": "a.b"}),
        written({**FIELDS, "lease_id": CANARY}), written({**FIELDS, "lease_seconds": 1e9}),
        written({**FIELDS, "task_id": "gr 1"}), written({**FIELDS, "causation_id": CANARY}),
        written({**FIELDS, "trace_id": "\x00"}), written({**FIELDS, "claimed_at": -1.7e308}),
        written(b'{"claimed_at": Infinity}'), written({**FIELDS, "claimed_at": 1e300}),
        written(b'{"workspace": "acme", "workspace": "rival"}'),
        written(b"[" * 1400),
    ],
)  # fmt: skip
def test_what_is_no_ticket_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        taken(text)
    assert refused.value.code == "bad_token"
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_token_any_byte_changed_is_refused(place: int) -> None:
    """M3: every field is under the signature, and so are the key's id and the signature itself."""
    text = made().reveal(KEY)
    body = bytearray(base64.urlsafe_b64decode(text[3:] + "=" * (-len(text[3:]) % 4)))
    body[place % len(body)] ^= 1
    changed = "t1." + base64.urlsafe_b64encode(body).decode().rstrip("=")
    with pytest.raises(InvalidInputError, match="token"):
        taken(changed)


@pytest.mark.parametrize("key", [OTHER, SigningKey(1, bytes(range(32))), SigningKey(3, bytes(32)), None])
def test_token_signed_with_another_key_is_refused(key: SigningKey | None) -> None:
    """M3: neither another secret nor another number of the same secret signs for this one."""
    with pytest.raises(InvalidInputError, match="token"):
        taken(made().reveal(KEY), key)


def test_token_spelled_otherwise_is_refused() -> None:
    """M3: the unused bits of the last letter make no second token of one."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for agent_id in ("worker-1", "worker-12", "worker-123"):
        text = made(agent_id=agent_id).reveal(KEY)
        for letter in letters.replace(text[-1], ""):
            with pytest.raises(InvalidInputError, match="token"):
                taken(text[:-1] + letter)


def test_signing_key_printed_shows_no_secret() -> None:
    """M3: a log line with a key in it would be worth a forged token."""
    assert "secret" not in repr(OTHER)
    assert OTHER.secret.hex() not in repr(OTHER)
