"""Secrets of local servers: random, and in files that only their owner can read."""

import contextlib
import os
import secrets
from pathlib import Path


def random_secret() -> str:
    """Return 192 random bits as hex digits, which no URL and no SQL has to escape."""
    return secrets.token_hex(24)


def write_private(path: Path, text: str) -> None:
    """Replace the file `path` at once with one of mode 0600 that holds `text`.

    The file is never readable for others, not even before its mode could be changed.
    """
    draft = path.with_name(f"{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def kept_secret(path: Path) -> str:
    """Return the secret in the file `path`; create the file with a new one if it is missing."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        secret = random_secret()
        write_private(path, f"{secret}\n")
        return secret
