"""Values that a worker keeps for later attempts: of steps, and checkpoints. Their secrets are sealed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import PydanticSerializationError

from grns.errors import InvalidInputError, SealedError
from grns.model.envelope import first_problem
from grns.model.json import ANY_SIZE, Limits, dumps, loads_stored
from grns.model.outcome import Claim
from grns.model.secret import (
    SECRET,
    STARS,
    Path,
    Scrubber,
    check_clear,
    clear_text,
    replace_at,
    secret_places_of,
    secrets_within,
    with_secrets,
)
from grns.model.secret_forms import LEAST_SCRUBBED
from grns.model.vault import Vault
from grns.worker.step import NoKeyHereError
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
        """Raise NoKeyHereError if values of a type have secrets, and no key to seal them is here."""
        if adapter is not None and self._vault and self._vault.keys is None and secret_places(adapter):
            raise NoKeyHereError("no_key", "its value has secrets, and no key to seal them is here")

    def text(self, value: Any, limits: Limits, adapter: TypeAdapter[Any] | None = None) -> str:
        """Return a value as the JSON that is stored. Any thread may call it.

        Args:
            value: what `adapter` writes, or a JSON value, a model or a dataclass.
            limits: of the text, before it is sealed.
            adapter: how the value is written. Defaults to that of its class, if that has secrets.

        Raises:
            InvalidInputError: it cannot be stored; `undeclared_secret`: it has a secret that its type does
                not show; `sealed_value`: it plays a stored secret; `no_keys`.
        """
        shown = adapter or adapter_of_value(value)
        places = () if shown is None else secret_places(shown)
        if shown is None or not places:
            text = clear_text(value, limits, adapter)
            check_clear(text)
            return text
        document, secrets = _with_secrets(value, shown, places)
        text = dumps(document, limits)
        check_clear(text)
        if self._vault is None:
            return text
        sealed = dumps(self._vault.hide(document, places, self._claim.workspace), ANY_SIZE)
        if any(len(one) >= LEAST_SCRUBBED and dumps(one, ANY_SIZE)[1:-1] in sealed for one in secrets):
            raise InvalidInputError("undeclared_secret", "it has a SecretStr where nothing would seal it")
        self._add(Scrubber(secrets))
        return sealed

    def value(self, text: str) -> Any:
        """Return a stored value with its secrets. Raises NoKeyHereError, or another SealedError."""
        if self._vault is None or SECRET not in text:
            return loads_stored(text)
        try:
            opened, scrubber = self._vault.open_text(text, self._claim.workspace)
        except SealedError as error:
            if error.code == "no_key":
                raise NoKeyHereError(error.code, str(error)) from None
            raise
        if scrubber is not None:
            self._add(scrubber)
        return loads_stored(opened)

    def _add(self, scrubber: Scrubber) -> None:
        with _NOTING:
            self._claim.scrubber = scrubber.with_those_of(self._claim.scrubber)


class _Schema(GenerateJsonSchema):
    """The schema of a type, without warnings of what cannot be shown in one."""

    ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment]


@lru_cache(maxsize=500)
def secret_places(adapter: TypeAdapter[Any]) -> tuple[Path, ...]:
    """Return the places of a type whose values are secret."""
    found: list[Path] = []
    modes: tuple[JsonSchemaMode, ...] = (
        "serialization",
        "validation",
    )  # a serializer hides it from the first
    for mode in modes:
        with suppress(Exception):  # it has none, or a method of the user's fails
            found += secret_places_of(adapter.json_schema(by_alias=True, mode=mode, schema_generator=_Schema))
    return tuple(dict.fromkeys(found))


def _with_secrets(value: Any, adapter: TypeAdapter[Any], places: Sequence[Path]) -> tuple[Any, list[str]]:
    """Return a value as JSON with its secrets in clear, and these."""
    document = _written(adapter, value, warnings="error")
    if document is None:  # such as a dict for a model
        value = validated(adapter, value)
        document = _written(adapter, value)
    inner = adapter.dump_python(value, by_alias=True, warnings="none")
    document = with_secrets(None if document is None else document[0], inner, places)
    within: list[Any] = []
    replace_at(document, places, within.append)
    real, found = secrets_within(value), _texts(within)
    if any(STARS in one and one not in real for one in found):  # as in a set, whose order JSON does not keep
        raise InvalidInputError("undeclared_secret", "it has a SecretStr where nothing would seal it")
    return document, [*real, *found]


def _written(
    adapter: TypeAdapter[Any], value: Any, *, warnings: Literal["none", "error"] = "none"
) -> tuple[Any] | None:
    """Return a value as JSON; None if it does not fit. pydantic's own error would show it."""
    try:
        return (adapter.dump_python(value, mode="json", by_alias=True, warnings=warnings),)
    except PydanticSerializationError:
        return None


def _texts(values: Sequence[Any]) -> list[str]:
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


def validated(adapter: TypeAdapter[Any], value: Any) -> Any:
    """Return what a type makes of a value. Its error, unlike pydantic's, shows no part of the value.

    Raises:
        InvalidInputError: `bad_handler`.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problem = first_problem(error)
    raise InvalidInputError("bad_handler", f"the value does not fit its annotation: {problem}")
