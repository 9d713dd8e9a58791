"""What seals the secrets of documents, and opens them, by the keys of an installation."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from grns.errors import InvalidInputError, SealedError
from grns.model.json import ANY_SIZE, dumps, loads_stored
from grns.model.seal import Keyring, key_of
from grns.model.secret import SECRET, Path, Scrubber, check_unmasked, replace_at, replace_secrets

_ABOUT = "secret"
_ABOUT_WEBHOOK = "webhook"
_ABOUT_MAIL = "mail"
_SEALED_KEY = b'{"' + SECRET.encode() + b'"'


class Vault:
    """Seals the secrets of documents, and opens them.

    Without keys it seals nothing: a document with a secret raises an error.

    Args:
        keys: the keys of GRNS_KEYS_FILE; None: there is none.

    Example:
        vault = Vault(Keyring([MasterKey.new("2026")]))
        stored = vault.hide({"token": "t0ken"}, [("token",)], "default")  # {"token": {"$secret": "1.2026…"}}
        vault.open(stored, "default")  # {"token": "t0ken"}
    """

    def __init__(self, keys: Keyring | None = None) -> None:
        self.keys = keys
        # What the task types of a workspace have declared as secret, and when that was read.
        self.known_paths: dict[str, tuple[float, Mapping[str, tuple[Path, ...]]]] = {}

    def hide(
        self,
        document: Any,
        paths: Sequence[Path],
        workspace: str,
        *,
        by: str | None = None,
        mail: Sequence[str] = (),
    ) -> Any:
        """Return a document with what these paths lead to sealed; `by` names the key.

        With a message's id and its agent as `mail`, it opens for that agent in that message alone: who reads
        the sealed text cannot have it opened by sending it on, nor tell what it is by sending guesses.

        Raises:
            InvalidInputError: `no_keys` where there is something to be sealed, and no key; `masked_value`
                where a secret is `•••`, as it was shown.
        """
        return replace_at(document, paths, lambda value: self._hidden(value, _about(workspace, mail), by))

    def open(self, document: Any, workspace: str, *, mail: Sequence[str] = ()) -> Any:
        """Return a document with its secrets opened. Raises SealedError if one cannot be opened here."""
        return replace_secrets(document, lambda sealed: self._opened(sealed, _about(workspace, mail)))

    def open_text(self, text: str, workspace: str) -> tuple[str, Scrubber | None]:
        """Open the secrets of stored JSON text; return the text, and what removes their values from others.

        Raises:
            SealedError: one cannot be opened here.
        """
        if SECRET not in text:
            return text, None
        values: list[Any] = []

        def opened(sealed: str) -> Any:
            values.append(self._opened(sealed, _about(workspace)))
            return values[-1]

        document = replace_secrets(loads_stored(text), opened)
        return (dumps(document, ANY_SIZE), Scrubber(values)) if values else (text, None)

    def hide_key(self, key: bytes, workspace: str) -> bytes:
        """Return the signing secret of a webhook as it is stored: sealed, if there is a key of ours."""
        if self.keys is None:
            return key
        sealed = self.keys.seal(base64.b64encode(key).decode(), (_ABOUT_WEBHOOK, workspace))
        return dumps({SECRET: sealed}).encode()

    def open_key(self, stored: bytes, workspace: str) -> bytes:
        """Return a signing secret as it was before `hide_key`. Raises SealedError if it cannot be opened."""
        if not stored.startswith(_SEALED_KEY):
            return stored
        sealed = loads_stored(stored.decode())[SECRET]
        return base64.b64decode(self._keys().open(sealed, (_ABOUT_WEBHOOK, workspace)))

    def reseal_key(self, stored: bytes, workspace: str) -> bytes:
        """Return a signing secret sealed by the first key. Raises SealedError."""
        return self.hide_key(self.open_key(stored, workspace), workspace)

    def reseal(self, document: Any, workspace: str, *, mail: Sequence[str] = ()) -> Any:
        """Return a document whose secrets are sealed by the first key. Raises SealedError."""
        about = _about(workspace, mail)

        def resealed(sealed: str) -> Any:
            if self.keys is not None and key_of(sealed) == self.keys.current.name:
                return {SECRET: sealed}
            return self._hidden(self._opened(sealed, about), about, None)

        return replace_secrets(document, resealed)

    def _hidden(self, value: Any, about: tuple[str, ...], by: str | None) -> Any:
        if isinstance(value, dict) and set(value) == {SECRET}:
            return value  # a patch has left it as it was
        check_unmasked(value)
        if self.keys is None:
            raise InvalidInputError(
                "no_keys", "there are secrets, and no key to seal them is here: set GRNS_KEYS_FILE"
            )
        is_alike = about[0] != _ABOUT_MAIL  # nothing compares messages
        return {SECRET: self.keys.seal(dumps(value, ANY_SIZE), about, by=by, is_alike=is_alike)}

    def _opened(self, sealed: str, about: tuple[str, ...]) -> Any:
        return loads_stored(self._keys().open(sealed, about))

    def _keys(self) -> Keyring:
        if self.keys is None:
            raise SealedError("no_key", "it has secrets, and no key to open them is here: set GRNS_KEYS_FILE")
        return self.keys


def _about(workspace: str, mail: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what a secret is bound to: it opens nowhere else."""
    return (_ABOUT_MAIL, workspace, *mail) if mail else (_ABOUT, workspace)
