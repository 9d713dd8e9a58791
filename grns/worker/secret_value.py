"""Values that a worker keeps for later attempts: of steps, and checkpoints. Their secrets are sealed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import PydanticUserError, ValidationError
from pydantic_core import PydanticSerializationError

from grns.errors import InvalidInputError, SealedError
from grns.model.envelope import first_problem
from grns.model.json import ANY_SIZE, Limits, dumps, loads_stored
from grns.model.outcome import Claim
from grns.model.secret import (
    SECRET,
    Path,
    Scrubber,
    check_clear,
    clear_json,
    replace_at,
    secret_places_of,
    secrets_within,
    with_secrets,
)
from grns.model.vault import Vault
from grns.worker.step_function import adapter_of_value

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_NOTING = threading.Lock()


class SealedValues:
    """Writes and reads the values of one attempt. What the attempt says is searched for their secrets.

    Args:
        claim: the attempt.
        vault: what seals and opens secrets; None: they are kept in clear, as in tests of users.
    """

    def __init__(self, claim: Claim, vault: Vault | None) -> None:
        self._claim = claim
        self._vault = vault

    def check(self, adapter: TypeAdapter[Any] | None) -> None:
        """Raise SealedError (`no_key`) if values of a type have secrets, and no key to seal them is here."""
        if adapter is not None and secret_places(adapter) and self._vault and self._vault.keys is None:
            raise SealedError("no_key", "its value has secrets, and no key to seal them is here")

    def text(self, value: Any, limits: Limits, adapter: TypeAdapter[Any] | None = None) -> str:
        """Return a value as the JSON that is stored. Any thread may call it.

        Args:
            value: what `adapter` writes, or a JSON value, a model or a dataclass.
            limits: of the text, before it is sealed.
            adapter: how the value is written. Defaults to that of its class.

        Raises:
            InvalidInputError: it cannot be stored; `undeclared_secret`: it has a secret that its type does
                not show; `sealed_value`: it plays a stored secret.
            SealedError: `no_key`.
        """
        adapter = adapter or adapter_of_value(value)
        places = () if adapter is None else secret_places(adapter)
        if adapter is None or not places:
            text = dumps(clear_json(value, adapter), limits)
            check_clear(text)
            return text
        self.check(adapter)
        document, secrets = _with_secrets(value, adapter, places)
        text = dumps(document, limits)
        check_clear(text)
        if self._vault is None:
            return text
        self._note(secrets)
        return dumps(self._vault.hide(document, places, self._claim.workspace), ANY_SIZE)

    def value(self, text: str) -> Any:
        """Return a stored value with its secrets. Raises SealedError if one cannot be opened here."""
        if self._vault is None or SECRET not in text:
            return loads_stored(text)
        opened, scrubber = self._vault.open_text(text, self._claim.workspace)
        if scrubber is not None:
            self._add(scrubber)
        return loads_stored(opened)

    def _note(self, secrets: Sequence[Any]) -> None:
        self._add(Scrubber(secrets))

    def _add(self, scrubber: Scrubber) -> None:
        with _NOTING:
            self._claim.scrubber = scrubber.with_those_of(self._claim.scrubber)


@lru_cache(maxsize=2000)
def secret_places(adapter: TypeAdapter[Any]) -> tuple[Path, ...]:
    """Return the places of a type whose values are secret."""
    found: list[Path] = []
    for mode in ("serialization", "validation"):  # a serializer of a field hides it from the one
        try:
            found += secret_places_of(adapter.json_schema(by_alias=True, mode=mode))
        except PydanticUserError:  # it has no schema: a secret that is left out is refused
            continue
    return tuple(dict.fromkeys(found))


def _with_secrets(value: Any, adapter: TypeAdapter[Any], places: Sequence[Path]) -> tuple[Any, list[Any]]:
    """Return a value as JSON, with its secrets in clear, and these."""
    try:
        document = adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
    except PydanticSerializationError:  # such as a dict for a model
        value = validated(adapter, value, "the value does not fit its annotation")
        document = adapter.dump_python(value, mode="json", by_alias=True)
    inner = adapter.dump_python(value, by_alias=True)
    document = with_secrets(document, inner, places)
    secrets: list[Any] = []
    replace_at(document, places, secrets.append)
    if not set(secrets_within(inner)) <= set(secrets_within_json(secrets)):
        raise InvalidInputError(
            "undeclared_secret", "it has a SecretStr where nothing would seal it, as in a set"
        )
    return document, secrets


def secrets_within_json(values: Sequence[Any]) -> list[str]:
    """Return all texts within JSON values."""
    found: list[str] = []
    pending = list(values)
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return found


def validated(adapter: TypeAdapter[Any], value: Any, what: str) -> Any:
    """Return what a type makes of a value. Its error, unlike pydantic's, shows no part of the value.

    Raises:
        InvalidInputError: `step_changed`.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problem = first_problem(error)
    raise InvalidInputError("step_changed", f"{what}: {problem}")
