"""Secrets and sealed documents: hidden, shown as dots, revealed, and removed from texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

from grns.errors import InvalidInputError, SealedError
from grns.model.seal import Keyring, MasterKey
from grns.model.secret import (
    MASK,
    Scrubber,
    check_clear,
    masked,
    read_paths,
    replace_at,
    secret_paths_of,
)
from grns.model.vault import Vault

ABOUT = ("payload", "default", "deploy")
KEYS = Keyring([MasterKey.new("key")])
DOCUMENT = {
    "auth": {"token": "t0ken-t0ken", "user": "ann", "old": None},
    "hosts": [{"name": "a", "password": "pw-a-pw-a"}, {"name": "b", "password": ["pw-b-pw-b", 7]}],
    "city": "Rome",
}
PATHS = read_paths(["auth.*", "hosts.*.password", "missing.too"])


def test_secrets_are_hidden_shown_as_dots_and_revealed() -> None:
    vault = Vault(KEYS, seals_all=False)
    hidden = vault.hide(DOCUMENT, PATHS, ABOUT)
    stored = vault.seal(json.dumps(hidden), ABOUT)
    assert not any(secret in stored for secret in ("t0ken", "ann", "pw-a", "pw-b"))
    assert "Rome" in stored
    opened = vault.open(stored, ABOUT)
    assert masked(opened) == {
        "auth": {"token": MASK, "user": MASK, "old": None},
        "hosts": [{"name": "a", "password": MASK}, {"name": "b", "password": MASK}],
        "city": "Rome",
    }
    document, values = vault.reveal(opened, ABOUT)
    assert document == DOCUMENT
    assert sorted(map(str, values)) == ["['pw-b-pw-b', 7]", "ann", "pw-a-pw-a", "t0ken-t0ken"]
    with pytest.raises(SealedError):
        vault.reveal(opened, ("payload", "default", "other"))


def test_a_secret_that_is_sealed_stays_as_it_is() -> None:
    """A merge patch of another member hides the document again."""
    vault = Vault(KEYS)
    hidden = vault.hide(DOCUMENT, PATHS, ABOUT)
    assert vault.hide({**hidden, "city": "Bonn"}, PATHS, ABOUT) == {**hidden, "city": "Bonn"}


def test_a_whole_document_is_sealed_and_says_what_is_to_stay_in_clear() -> None:
    vault = Vault(KEYS, clear=["tenant", "city"])
    stored = json.loads(vault.seal(json.dumps(DOCUMENT), ABOUT))
    assert set(stored) == {"$sealed", "city"}
    assert vault.open(json.dumps(stored), ABOUT) == DOCUMENT
    assert vault.open(json.dumps({**stored, "reason": "added"}), ABOUT) == {**DOCUMENT, "reason": "added"}
    assert json.loads(Vault(KEYS).seal("[1]", ABOUT)).keys() == {"$sealed"}


@pytest.mark.parametrize("text", ["1", "null", '"x"', "[]", "{}", '{"a":1.0}'])
def test_any_value_can_be_sealed(text: str) -> None:
    vault = Vault(KEYS)
    assert json.dumps(vault.open(vault.seal(text, ABOUT), ABOUT)) == json.dumps(json.loads(text))


def test_without_keys_documents_pass_and_secrets_are_refused() -> None:
    vault = Vault()
    assert vault.seal('{"a":1}', ABOUT) == '{"a":1}'
    assert vault.open('{"a":1}', ABOUT) == {"a": 1}
    assert vault.hide(DOCUMENT, (), ABOUT) is DOCUMENT
    assert vault.hide({"city": "Rome"}, PATHS, ABOUT) == {"city": "Rome"}
    with pytest.raises(InvalidInputError, match="no key") as refused:
        vault.hide(DOCUMENT, PATHS, ABOUT)
    assert refused.value.code == "no_keys"
    with pytest.raises(SealedError, match="GRNS_KEYS_FILE") as sealed:
        vault.open(Vault(KEYS).seal('{"a":1}', ABOUT), ABOUT)
    assert sealed.value.code == "no_key"


@pytest.mark.parametrize("path", ["", ".", "a..b", "*", "*.*", "a\n"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="secret"):
        read_paths([path])


def test_a_path_leads_to_whole_values_and_a_document_is_left_as_it_is() -> None:
    before = json.dumps(DOCUMENT)
    changed = replace_at(DOCUMENT, read_paths(["hosts", "auth.token"]), lambda value: "X")
    assert changed == {"auth": {"token": "X", "user": "ann", "old": None}, "hosts": "X", "city": "Rome"}
    assert json.dumps(DOCUMENT) == before


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"$sealed": "1.a.b.c"}, "sealed_value"),
        ({"deep": [{"$secret": "1.a.b.c"}]}, "sealed_value"),
        ({"auth": {"token": MASK}}, "masked_value"),
    ],
)
def test_who_plays_a_sealed_value_is_refused(document: Any, code: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_clear(document, PATHS)
    assert refused.value.code == code


def test_dots_elsewhere_are_text() -> None:
    check_clear({"city": MASK, "auth": {}}, PATHS)


def test_secrets_are_removed_from_texts() -> None:
    scrubber = Scrubber(["secret-1", {"a": ["secret-1-longer", "short", 123456789]}, "a.b*c+d"])
    assert scrubber.text("got secret-1-longer, secret-1 and short") == f"got {MASK}, {MASK} and short"
    assert scrubber.text("a.b*c+d aXb*c+d") == f"{MASK} aXb*c+d"
    assert scrubber.value({"secret-1": ["x secret-1", 5, None]}) == {MASK: [f"x {MASK}", 5, None]}
    assert Scrubber(["short"]).text("short") == "short"


class Host(BaseModel):
    name: str
    password: SecretStr
    spare: list[Host] = []


class Deploy(BaseModel):
    token: SecretBytes
    maybe: SecretStr | None = None
    hosts: list[Host]
    by_name: dict[str, Host] = {}
    pair: tuple[str, SecretStr] | None = None


def test_secrets_of_models_are_found() -> None:
    assert secret_paths_of(Deploy.model_json_schema()) == [
        "token", "maybe", "hosts.*.password", "hosts.*.spare.*.password", "by_name.*.password",
        "by_name.*.spare.*.password", "pair.*",
    ]  # fmt: skip
