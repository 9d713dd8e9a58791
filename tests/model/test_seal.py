"""Sealing: what is sealed opens with its key, as what it was sealed, and as nothing else."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from grns.errors import SealedError, SettingsError
from grns.model.seal import KEY_BYTES, Keyring, MasterKey, _derived, key_of

OLD, NEW = MasterKey("old", bytes(range(32))), MasterKey("new", bytes(range(32, 64)))
ABOUT = ("payload", "default", "weather")
TEXT = '{"city":"Rome"}'


@given(st.text())
def test_what_is_sealed_opens(text: str) -> None:
    ring = Keyring([OLD])
    sealed = ring.seal(json.dumps(text), ABOUT)
    assert text not in sealed or len(text) < 8
    assert json.loads(ring.open(sealed, ABOUT)) == text


def test_the_first_key_seals_and_all_open() -> None:
    before = Keyring([OLD]).seal(TEXT, ABOUT)
    ring = Keyring([NEW, OLD])
    after = ring.seal(TEXT, ABOUT)
    assert (key_of(before), key_of(after)) == ("old", "new")
    assert ring.open(before, ABOUT) == ring.open(after, ABOUT) == TEXT
    with pytest.raises(SealedError, match="by the key old") as caught:
        Keyring([NEW]).open(before, ABOUT)
    assert caught.value.code == "no_key"


@pytest.mark.parametrize(
    "about",
    [
        ("payload", "other", "weather"),
        ("payload", "default", "mail"),
        ("result", "default", "weather"),
        ("payload", "defaultweather"),
        ('payload","default', "weather"),
    ],
    ids=str,
)
def test_it_opens_as_nothing_else(about: tuple[str, ...]) -> None:
    ring = Keyring([OLD])
    with pytest.raises(SealedError) as caught:
        ring.open(ring.seal(TEXT, ABOUT), about)
    assert caught.value.code == "not_ours"


def test_no_changed_byte_is_taken() -> None:
    ring = Keyring([OLD])
    version, name, salt, data = ring.seal(TEXT, ABOUT).split(".")
    for place in (0, len(data) // 2, len(data) - 2):
        other = "A" if data[place] != "A" else "B"
        changed = data[:place] + other + data[place + 1 :]
        with pytest.raises(SealedError):
            ring.open(f"{version}.{name}.{salt}.{changed}", ABOUT)
    with pytest.raises(SealedError):
        ring.open(f"{version}.{name}.{salt[:-2]}.{data}", ABOUT)


@pytest.mark.parametrize("text", ["", "1", "1.old", "1.old.!!.??", "2.old.AAAA.AAAA", "1.old.AAAA.", "....."])
def test_what_is_no_sealed_value_is_refused_in_words(text: str) -> None:
    with pytest.raises(SealedError):
        Keyring([OLD]).open(text, ABOUT)


def test_the_same_value_is_sealed_alike_and_another_one_is_not() -> None:
    ring = Keyring([OLD, NEW])
    first = ring.seal(TEXT, ABOUT)
    assert ring.seal(TEXT, ABOUT) == first
    for other in (
        ring.seal(TEXT + " ", ABOUT),
        ring.seal(TEXT, ("payload", "other", "weather")),
        ring.seal(TEXT, ABOUT, by="new"),
    ):
        assert not set(other.split(".")[2:]) & set(first.split(".")[2:])
        assert ring.open(first, ABOUT) == TEXT


def test_keys_are_derived_as_hkdf_says() -> None:
    expected = HKDF(SHA256(), 44, b"salt", b"grns value x").derive(OLD.secret)
    assert _derived(OLD, b"salt", b"value x", 44) == expected


def test_a_key_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# the newest first\n{NEW.line()}\n\n  {OLD.line()}=\n")
    file.chmod(stat.S_IRUSR)
    ring = Keyring.read(file)
    assert (ring.names, ring.current) == (["new", "old"], NEW)
    assert ring.open(Keyring([OLD]).seal(TEXT, ABOUT), ABOUT) == TEXT
    assert "secret" not in repr(ring.current)


SHORT = base64.b64encode(bytes(KEY_BYTES - 1)).decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no key"),
        ("only-a-name", "line 1"),
        (f"a {SHORT}", "not 32 bytes"),
        ("a not-base64!", "not 32 bytes"),
        (f"{OLD.line()}\n{OLD.line()}", "same name"),
        (f"bad/name {OLD.line().split()[1]}", "line 1"),
        (f"{OLD.line()} more", "line 1"),
    ],
)
def test_a_bad_key_file_is_refused_without_its_keys(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(SettingsError, match=why) as caught:
        Keyring.read(file)
    assert not any(len(word) > 40 and word in str(caught.value) for word in text.split())


def test_a_missing_key_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="GRNS_KEYS_FILE"):
        Keyring.read(tmp_path / "none")
