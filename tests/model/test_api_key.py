"""API keys as words: made, read, held against their digest, and never shown by accident."""

from __future__ import annotations

import hashlib
import io
import json

import pytest
import structlog

from grns.errors import InvalidInputError
from grns.model import api_key as key
from grns.telemetry import log
from grns.telemetry.service_signals import TransportFailing
from tests.support.bad_input import BAD_NAMES

NOW = 1_790_000_000_000
KEY = key.make(NOW)
SHOWN = KEY.reveal()
ARABIC_DIGITS = "١" * 64

NO_KEYS = [
    *(str(case.value) for case in BAD_NAMES),
    "grns",
    "grns__",
    SHOWN[:-1],
    SHOWN + "0",
    SHOWN + "\n",
    f" {SHOWN}",
    SHOWN.upper(),
    f"Bearer {SHOWN}",
    SHOWN.replace("_", "-"),
    f"grns_{KEY.id}",
    f"{KEY.id}_{KEY.secret}",
    f"grns_{KEY.id}_{ARABIC_DIGITS}",
    "0" * 1_000_000,
]


def test_a_key_is_read_as_it_was_shown() -> None:
    assert key.parse(SHOWN) == KEY
    assert f"grns_{KEY.id}_{KEY.secret}" == SHOWN


def test_ids_sort_by_time_and_secrets_never_repeat() -> None:
    made = [key.make(NOW + number) for number in range(100)]
    ids = [one.id for one in made]
    assert ids == sorted(ids)
    assert len({one.secret for one in made}) == 100
    assert {len(one.secret) for one in made} == {64}
    assert len({key.make(NOW).id for _ in range(100)}) == 100


def test_only_the_digest_of_a_secret_is_kept() -> None:
    kept = key.digest(KEY.secret)
    assert kept == hashlib.sha256(KEY.secret.encode()).digest()
    assert key.matches(KEY.secret, kept)
    for other in (key.make(NOW).secret, KEY.secret[:-1], KEY.secret.upper(), KEY.secret + "0", ""):
        assert not key.matches(other, kept)
    assert not key.matches(KEY.secret, bytes(32))


@pytest.mark.parametrize("text", NO_KEYS, ids=range(len(NO_KEYS)))
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    for read in (key.parse, key.key_id):
        with pytest.raises(InvalidInputError) as refused:
            read(text)
        assert refused.value.code == "bad_key"
        assert KEY.secret[:16] not in str(refused.value)
        assert len(str(refused.value)) < 100


def test_an_id_is_taken_from_a_whole_key_too() -> None:
    assert key.key_id(KEY.id) == KEY.id
    assert key.key_id(SHOWN) == KEY.id


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "\x1b[31m", "\u202egnp", "\ud800", "a\x00"])
def test_a_name_that_nobody_can_read_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        key.check(name, None)
    assert refused.value.code == "bad_name"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e10])
def test_a_time_in_which_no_key_can_expire_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInputError) as refused:
        key.check("ci", seconds)
    assert refused.value.code == "bad_expiry"
    key.check("ci of the shop, née till", 0.5)


def test_a_key_is_not_printed_by_accident() -> None:
    assert KEY.secret not in f"{KEY} {KEY!r} {[KEY]}"
    assert key.redacted(f"a {SHOWN}, b {SHOWN[:40]}.") == f"a grns_{KEY.id}_***, b grns_{KEY.id}_***."
    plain = "grns_postgres_failovers_total of postgresql://grns_app@db/app"
    assert key.redacted(plain) == plain


def test_a_log_line_holds_no_secret_of_a_key() -> None:
    stream = io.StringIO()
    log.configure(level="info", format="json", stream=stream)
    detail = f"refused {SHOWN} at nats://u:{SHOWN}@n1"
    log.LogListener(level="info").receive(TransportFailing("broker_error", detail))
    structlog.reset_defaults()
    told = json.loads(stream.getvalue())["detail"]
    assert told == f"refused grns_{KEY.id}_*** at nats://u:***@n1"
