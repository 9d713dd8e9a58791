"""The fingerprint of a failure: the same for failures that a person would call the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

# Longest forms first: what is left of an id must not be taken for a number.
_MASKS = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE), "<uuid>"),
    (re.compile(r"gr-[0-9a-v]{20,}"), "<task>"),
    (re.compile(r"\"[^\"\n]*\"|'[^'\n]*'"), "<text>"),
    (re.compile(r"(?:/[\w.@+-]+){2,}/?"), "<path>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{12,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<number>"),
)
_LONGEST_MESSAGE = 2000


def normalise(message: str) -> str:
    """Return the message without what differs from one occurrence to the next."""
    text = message[:_LONGEST_MESSAGE]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return " ".join(text.split())


def fingerprint(task_type: str, error_class: str, message: str, frames: Sequence[str] = ()) -> str:
    """Return 16 hex digits of task type, error class, normalised message and the top own frames."""
    parts = [task_type, error_class, normalise(message), *frames[:3]]
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
