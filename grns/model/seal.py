"""Sealed values: what is stored encrypted, and opened by who has the key.

A sealed value is the text `1.<key>.<salt>.<text>`: the version of this form, the name of the master key, 16
bytes, and what AES-256-GCM made of the value. Each value has a key of its own, which HKDF-SHA256 (RFC 5869)
derives from the master key, the salt and what the value is: a value opens only as what it was sealed as (one
of another workspace does not).

The salt is an HMAC of the value, in the manner of SIV (RFC 5297): no nonce is ever used for two values, and
the same value sealed twice by one key is the same text. So Postgres compares payloads with secrets as it
compares others, for idempotency keys and unique tasks. Who reads the table sees which values are alike, and
nothing else of them.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NoReturn

from grns.errors import SealedError, SettingsError

KEY_BYTES: Final = 32
_VERSION = "1"
_SALT_BYTES = 16
_NONCE_BYTES = 12
_KEY_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A key of 32 bytes, from which those of values are derived; its name stands in what it sealed."""

    name: str
    secret: bytes = field(repr=False)

    @classmethod
    def new(cls, name: str) -> MasterKey:
        """Make a key of random bytes."""
        return cls(name, secrets.token_bytes(KEY_BYTES))

    def line(self) -> str:
        """Return the key as a line of a key file."""
        return f"{self.name} {_text(self.secret)}"


class Keyring:
    """The keys of an installation: the first one seals, all of them open.

    Args:
        keys: at least one; their names differ.
    """

    def __init__(self, keys: Sequence[MasterKey]) -> None:
        if not keys:
            raise SettingsError("GRNS_KEYS_FILE: the file has no key")
        self._keys = {one.name: one for one in keys}
        if len(self._keys) < len(keys):
            raise SettingsError("two keys have the same name")
        self.current = keys[0]

    @classmethod
    def read(cls, path: Path) -> Keyring:
        """Read a key file: a line `<name> <32 bytes in base64>` for each key; comments begin with `#`.

        Raises:
            SettingsError: the file cannot be read, or a line of it is none of these. The text never has a
                key.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"GRNS_KEYS_FILE: {path} cannot be read: {error}") from error
        said = [(number, line.split()) for number, line in enumerate(lines, 1)]
        return cls(
            [_key(path, number, words) for number, words in said if words and not words[0].startswith("#")]
        )

    @property
    def names(self) -> list[str]:
        """The names of the keys, the one that seals first."""
        return list(self._keys)

    def seal(self, plain: str, about: Sequence[str], *, by: str | None = None, is_alike: bool = True) -> str:
        """Seal a text.

        Args:
            plain: what is sealed.
            about: what it is, such as ("secret", workspace): it opens as nothing else.
            by: the name of the key. Defaults to the first one.
            is_alike: whether the same text, sealed again, is the same. If not, no two are.
        """
        key = self.current if by is None else self._keys[by]
        bound, data = _bound(about), plain.encode()
        mark = _derived(key, b"", b"salt", KEY_BYTES)
        salt = hmac.digest(mark, bound + b"\x00" + data, "sha256") if is_alike else secrets.token_bytes(32)
        salt = salt[:_SALT_BYTES]
        return ".".join([_VERSION, key.name, _text(salt), _text(_encrypted(key, salt, data, bound))])

    def open(self, sealed: str, about: Sequence[str]) -> str:
        """Open a sealed text.

        Raises:
            SealedError: `no_key` where the file has no such key; `not_ours` where it is sealed as something
                else, or was changed.
        """
        version, name, salt, data, *_ = [*sealed.split("."), "", "", ""]
        if version != _VERSION:
            raise SealedError(
                "not_ours", f"sealed in a form that this version of grns does not know: {version[:8]}"
            )
        if (key := self._keys.get(name)) is None:
            raise SealedError("no_key", f"sealed by the key {name[:32]}, which GRNS_KEYS_FILE does not have")
        try:
            return _decrypted(key, _bytes(salt), _bytes(data), _bound(about)).decode()
        except ValueError:
            _refuse(about)


def key_of(sealed: str) -> str:
    """Return the name of the key by which it was sealed."""
    return sealed.split(".", 2)[1] if sealed.count(".") >= 2 else ""


def _key(path: Path, number: int, words: Sequence[str]) -> MasterKey:
    where = f"GRNS_KEYS_FILE: line {number} of {path}"
    if len(words) != 2 or _KEY_NAME.fullmatch(words[0]) is None:
        raise SettingsError(f"{where} is not a name (up to 32 letters, digits, _ or -) and a key in base64")
    try:
        secret = base64.b64decode(words[1] + "=" * (-len(words[1]) % 4), altchars=b"-_", validate=True)
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise SettingsError(f"{where}: the key is not {KEY_BYTES} bytes in base64")
    return MasterKey(words[0], secret)


def _bound(about: Iterable[str]) -> bytes:
    """Return what a value is as bytes: no two are alike, whatever is in their parts."""
    return json.dumps(list(about), separators=(",", ":")).encode()


def _derived(key: MasterKey, salt: bytes, info: bytes, length: int) -> bytes:
    """Return bytes that are derived from a key: HKDF with SHA-256, as of RFC 5869."""
    block = hmac.digest(salt or bytes(32), key.secret, "sha256")
    derived, last = b"", b""
    for number in range(1, -(-length // sha256().digest_size) + 1):
        last = hmac.digest(block, last + b"grns " + info + bytes([number]), "sha256")
        derived += last
    return derived[:length]


def _cipher(key: MasterKey, salt: bytes, about: bytes) -> tuple[Any, bytes]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise SettingsError(
            "GRNS_KEYS_FILE needs the package cryptography: pip install 'grns[crypto]'"
        ) from error
    derived = _derived(key, salt, b"value " + about, KEY_BYTES + _NONCE_BYTES)
    return AESGCM(derived[:KEY_BYTES]), derived[KEY_BYTES:]


def _encrypted(key: MasterKey, salt: bytes, data: bytes, about: bytes) -> bytes:
    cipher, nonce = _cipher(key, salt, about)
    encrypted: bytes = cipher.encrypt(nonce, data, about)
    return encrypted


def _decrypted(key: MasterKey, salt: bytes, data: bytes, about: bytes) -> bytes:
    """Raises ValueError where it is not what was sealed."""
    cipher, nonce = _cipher(key, salt, about)
    from cryptography.exceptions import InvalidTag

    try:
        plain: bytes = cipher.decrypt(nonce, data, about)
    except InvalidTag as error:
        raise ValueError from error
    return plain


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _refuse(about: Sequence[str]) -> NoReturn:
    raise SealedError("not_ours", f"it was changed, or sealed as something else than this {about[0]}")
