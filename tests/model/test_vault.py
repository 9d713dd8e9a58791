"""Secrets and sealed documents: hidden, shown as dots, revealed, and removed from texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

from grns.errors import InvalidInputError, SealedError
from grns.model.json import dumps
from grns.model.seal import Keyring, MasterKey
from grns.model.secret import (
    MASK,
    Scrubber,
    check_clear,
    kept_secrets,
    mask_text,
    read_paths,
    replace_at,
    secret_paths_of,
)
from grns.model.vault import Vault

OURS = "default"
KEYS = Keyring([MasterKey.new("key")])
DOCUMENT = {
    "auth": {"token": "t0ken-t0ken", "user": "ann", "old": None},
    "hosts": [{"name": "a", "password": "pw-a-pw-a"}, {"name": "b", "password": ["pw-b-pw-b", 7]}],
    "city": "Rome",
}
MASKED = {
    "auth": {"token": MASK, "user": MASK, "old": None},
    "hosts": [{"name": "a", "password": MASK}, {"name": "b", "password": MASK}],
    "city": "Rome",
}
PATHS = read_paths(["auth.*", "hosts.*.password", "missing.too"])


def test_secrets_are_hidden_shown_as_dots_and_opened() -> None:
    vault = Vault(KEYS)
    stored = json.dumps(vault.hide(DOCUMENT, PATHS, OURS))
    assert not any(secret in stored for secret in ("t0ken", "ann", "pw-a", "pw-b"))
    assert "Rome" in stored
    assert json.loads(mask_text(stored)) == MASKED
    text, scrubber = vault.open_text(stored, OURS)
    assert json.loads(text) == DOCUMENT == vault.open(json.loads(stored), OURS)
    assert scrubber is not None
    assert scrubber.text("t0ken-t0ken pw-b-pw-b") == f"{MASK} {MASK}"
    with pytest.raises(SealedError):
        vault.open(json.loads(stored), "other")


def test_stored_secrets_are_masked_in_texts_of_json_too() -> None:
    document = {"a": Vault(KEYS).hide({"x": "hunter22"}, [("x",)], OURS)}
    for _ in range(3):
        document = {"line": json.dumps(document), "beside": '"$secret"'}
        shown = mask_text(json.dumps(document, indent=1))
        assert MASK in shown or "\\u2022" in shown
        assert "key." not in shown
        assert json.loads(shown)["beside"] == '"$secret"'


def test_a_secret_that_is_sealed_stays_as_it_is() -> None:
    """A merge patch of another member hides the document again."""
    vault = Vault(KEYS)
    hidden = vault.hide(DOCUMENT, PATHS, OURS)
    assert vault.hide({**hidden, "city": "Bonn"}, PATHS, OURS) == {**hidden, "city": "Bonn"}
    assert kept_secrets({**MASKED, "city": MASK}, hidden) == {**hidden, "city": MASK}


def test_another_key_seals_them_again() -> None:
    new = MasterKey.new("new")
    hidden = Vault(KEYS).hide(DOCUMENT, PATHS, OURS)
    both = Vault(Keyring([new, KEYS.current]))
    again = both.reseal(hidden, OURS)
    assert Vault(Keyring([new])).open(again, OURS) == DOCUMENT
    assert both.reseal(again, OURS) == again == both.hide(DOCUMENT, PATHS, OURS)


def test_without_keys_documents_pass_and_secrets_are_refused() -> None:
    vault = Vault()
    assert vault.open({"a": 1}, OURS) == {"a": 1}
    assert vault.open_text('{"a":1}', OURS) == ('{"a":1}', None)
    assert vault.hide({"city": "Rome"}, PATHS, OURS) == {"city": "Rome"}
    with pytest.raises(InvalidInputError, match="no key") as refused:
        vault.hide(DOCUMENT, PATHS, OURS)
    assert refused.value.code == "no_keys"
    with pytest.raises(SealedError, match="GRNS_KEYS_FILE") as sealed:
        vault.open(Vault(KEYS).hide(DOCUMENT, PATHS, OURS), OURS)
    assert sealed.value.code == "no_key"


def test_a_secret_as_it_was_shown_is_refused() -> None:
    with pytest.raises(InvalidInputError) as refused:
        Vault(KEYS).hide(MASKED, PATHS, OURS)
    assert refused.value.code == "masked_value"


@pytest.mark.parametrize("path", ["", ".", "a..b", "*", "*.*", "a\n"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="secret"):
        read_paths([path])


def test_a_path_leads_to_whole_values_and_a_document_is_left_as_it_is() -> None:
    before = json.dumps(DOCUMENT)
    changed = replace_at(DOCUMENT, read_paths(["hosts", "auth.token"]), lambda value: "X")
    assert changed == {"auth": {"token": "X", "user": "ann", "old": None}, "hosts": "X", "city": "Rome"}
    assert json.dumps(DOCUMENT) == before


@pytest.mark.parametrize("document", [{"$secret": "1.a.b.c"}, {"deep": [{"$secret": 1}]}, '{"$secret": 1}'])
def test_who_plays_a_stored_secret_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_clear(dumps({"a": document}))
    assert refused.value.code == "sealed_value"


def test_what_only_looks_alike_is_text() -> None:
    check_clear(dumps({"city": "$secret", "price": "$secrets: 1", "auth": {"secret": 1}}))


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
