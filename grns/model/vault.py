"""What seals and opens the values of an installation, as its settings say."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from grns.errors import InvalidInputError, SealedError
from grns.model.json import dumps, loads_stored
from grns.model.seal import SEALED, Keyring, sealed_part
from grns.model.secret import SECRET, Path, replace_at, replace_secrets

_ABOUT_SECRETS = "secret"


class Vault:
    """Seals documents as a whole, and secrets within them; opens both.

    Without keys it seals nothing: documents pass through, and what is sealed raises `SealedError`.

    Args:
        keys: the keys of GRNS_KEYS_FILE; None: there is none.
        seals_all: whether documents are sealed as a whole, too, and not only the secrets within them.
        clear: names of members of payloads that stay in clear beside what is sealed, for filters, limits
            and unique tasks.

    Example:
        vault = Vault(Keyring([MasterKey.new("2026")]))
        text = vault.seal('{"city": "Rome"}', ("payload", "default", "weather"))
        vault.open(text, ("payload", "default", "weather"))  # {"city": "Rome"}
    """

    def __init__(
        self, keys: Keyring | None = None, *, seals_all: bool = True, clear: Collection[str] = ()
    ) -> None:
        self.keys = keys
        self._seals_all = seals_all and keys is not None
        self._clear = frozenset(clear)

    def seal(self, text: str, about: Sequence[str], *, is_marked: bool = False) -> str:
        """Return a JSON text as it is stored.

        Args:
            text: a JSON text that was checked.
            about: what it is; it opens as nothing else.
            is_marked: whether it is to be compared with another one.
        """
        if not self._seals_all or self.keys is None:
            return text
        sealed = self.keys.seal(text, about, is_marked=is_marked)
        if not self._clear:
            return sealed
        document = loads_stored(text)
        beside = {name: document[name] for name in self._clear if name in document}
        return dumps({**json.loads(sealed), **beside}) if beside else sealed

    def open(self, text: str, about: Sequence[str]) -> Any:
        """Return the value of a stored text; secrets within it stay sealed.

        Members beside `$sealed` are in clear, or were added while it was sealed: they count.

        Raises:
            SealedError: it cannot be opened here.
        """
        value = loads_stored(text)
        if (sealed := sealed_part(value)) is None:
            return value
        opened = loads_stored(self._opened(sealed, about))
        beside = {name: member for name, member in value.items() if name != SEALED}
        return {**opened, **beside} if beside else opened

    def hide(self, document: Any, paths: Sequence[Path], about: Sequence[str]) -> Any:
        """Return a document with what these paths lead to sealed.

        Raises:
            InvalidInputError: `no_keys` where there is something to be sealed, and no key.
        """
        return replace_at(document, paths, lambda value: self._hidden(value, about)) if paths else document

    def reveal(self, document: Any, about: Sequence[str]) -> tuple[Any, list[Any]]:
        """Return a document with its secrets opened, and their values.

        Raises:
            SealedError: one cannot be opened here.
        """
        values: list[Any] = []

        def opened(sealed: str) -> Any:
            values.append(loads_stored(self._opened(sealed, (_ABOUT_SECRETS, *about))))
            return values[-1]

        return replace_secrets(document, opened), values

    def _hidden(self, value: Any, about: Sequence[str]) -> Any:
        if isinstance(value, dict) and set(value) == {SECRET}:
            return value  # a merge patch has left it as it was
        if self.keys is None:
            raise InvalidInputError(
                "no_keys", "this task has secrets, and this process has no key to seal them"
            )
        sealed: str = json.loads(self.keys.seal(dumps(value), (_ABOUT_SECRETS, *about)))[SEALED]
        return {SECRET: sealed}

    def _opened(self, sealed: str, about: Sequence[str]) -> str:
        if self.keys is None:
            raise SealedError("no_key", "it is sealed, and this process has no keys: set GRNS_KEYS_FILE")
        return self.keys.open(sealed, about)
