"""Secret values within a document: which they are, and what is shown of them.

A secret value is stored as `{"$secret": "<sealed>"}` (see `grns.model.seal`). So who reads a document knows
its secrets without asking what was declared, and a document that is shown has `•••` in their place.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from grns.errors import InvalidInputError
from grns.model.json import ANY_SIZE, Limits, dumps, jsonable
from grns.model.secret_forms import LEAST_SCRUBBED, beginning_of, end_of, forms_of, places_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SECRET: Final = "$secret"  # noqa: S105  # a name
"""The member of a secret value."""
STARS: Final = "*" * 10
"""What pydantic writes in place of one."""
MASK: Final = "•••"
"""What is shown of one."""
MOST_PATHS: Final = 32
_ANY = "*"
# A stored secret, as Postgres or we write it; within a text that is JSON itself, its quotes are escaped.
_STORED = re.compile(r'\{\s*(\\*)"\$secret\\*"\s*:\s*\\*"[A-Za-z0-9_.-]*\\*"\s*\}')
_MEMBER = re.compile(r'"\$secret\\*"\s*:')
_SEGMENT = re.compile(r"[^.\x00-\x1f]{1,255}")

Path = tuple[str, ...]


def read_paths(said: Iterable[str]) -> tuple[Path, ...]:
    """Return paths of secrets, such as `auth.*` or `accounts.*.password`, each as its segments.

    `*` is each member of an object and each value of an array. What a path leads to is secret as a whole.

    Raises:
        InvalidInputError: `bad_handler` names the path that is none.
    """
    paths = tuple(dict.fromkeys(tuple(one.split(".")) for one in said))
    for path in paths:
        if not all(_SEGMENT.fullmatch(segment) for segment in path) or set(path) == {_ANY}:
            raise InvalidInputError(
                "bad_handler", f"secret: {'.'.join(path)!r} is not a path such as 'password' or 'auth.*'"
            )
    if len(paths) > MOST_PATHS:
        raise InvalidInputError("bad_handler", f"secret: more than {MOST_PATHS} paths")
    return paths


def replace_at(document: Any, paths: Sequence[Path], change: Callable[[Any], Any]) -> Any:
    """Return a copy of a document with what these paths lead to changed; null stays."""
    if any(not path for path in paths):
        return None if document is None else change(document)
    if isinstance(document, dict):
        return {
            name: replace_at(value, inner, change) if (inner := _within(paths, name)) else value
            for name, value in document.items()
        }
    if isinstance(document, list):
        return [
            replace_at(value, inner, change) if (inner := _within(paths, str(place))) else value
            for place, value in enumerate(document)
        ]
    return document


def _within(paths: Sequence[Path], name: str) -> list[Path]:
    return [path[1:] for path in paths if path[0] in (name, _ANY)]


def replace_secrets(document: Any, change: Callable[[str], Any]) -> Any:
    """Return a document with each secret value changed; `change` gets what is sealed."""
    if isinstance(document, dict):
        sealed = document.get(SECRET)
        if isinstance(sealed, str) and len(document) == 1:
            return change(sealed)
        return {name: replace_secrets(value, change) for name, value in document.items()}
    if isinstance(document, list):
        return [replace_secrets(value, change) for value in document]
    return document


def has_secrets(document: Any) -> bool:
    """Say whether a document has a secret value."""
    pending = [document]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if isinstance(item.get(SECRET), str) and len(item) == 1:
                return True
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return False


def mask_text(text: str) -> str:
    """Return JSON text as it is shown: with `•••` in place of each secret, also within texts of JSON."""
    return _STORED.sub(_mask, text) if SECRET in text else text


def mask_bytes(text: bytes) -> bytes:
    """Return the bytes of JSON text as `mask_text` does."""
    return mask_text(text.decode()).encode() if SECRET.encode() in text else text


def _mask(found: re.Match[str]) -> str:
    return f'{found[1]}"{MASK}{found[1]}"'


def check_clear(text: str) -> None:
    """Refuse JSON text that plays a stored secret: what one caller sealed would be opened for another.

    Raises:
        InvalidInputError: `sealed_value` where it has a member `$secret`, or one that looks like it.
    """
    if SECRET in text and _MEMBER.search(text):
        raise InvalidInputError("sealed_value", f"the member {SECRET} is kept for stored secrets")


def kept_secrets(document: Any, stored: Any) -> Any:
    """Return a document with the stored secret wherever it says `•••`, as that was shown."""
    if document == MASK and isinstance(stored, dict) and set(stored) == {SECRET}:
        return stored
    if isinstance(document, dict) and isinstance(stored, dict):
        return {name: kept_secrets(value, stored.get(name)) for name, value in document.items()}
    if isinstance(document, list) and isinstance(stored, list):
        beside = [*stored, *[None] * len(document)]
        return [kept_secrets(value, inner) for value, inner in zip(document, beside, strict=False)]
    return document


def check_unmasked(value: Any) -> None:
    """Refuse a secret that is `•••` (`masked_value`)."""
    if value == MASK:
        raise InvalidInputError("masked_value", f"a secret is {MASK}, as it was shown: pass its value")


class Scrubber:
    """Removes the values of secrets from texts: of errors, of log lines, of what is streamed.

    It finds them as they are, and as programs write them: see `grns.model.secret_forms`.

    Example:
        Scrubber(["hunter22"]).text("401 for hunter22")  # '401 for •••'
    """

    def __init__(self, values: Iterable[Any]) -> None:
        self._texts = set(_texts(values))

    @cached_property
    def _forms(self) -> list[str]:
        """What is looked for, the longest first. It is made for the first text: many attempts have none."""
        return sorted({form for text in self._texts for form in forms_of(text)}, key=len, reverse=True)

    @property
    def texts(self) -> frozenset[str]:
        """The texts that are looked for."""
        return frozenset(self._texts)

    @property
    def forms(self) -> int:
        """Number of forms that are looked for: the time that a text takes grows with it."""
        return len(self._forms)

    def with_those_of(self, other: Scrubber | None) -> Scrubber:
        """Return one that removes the secrets of both."""
        if other is None or other._texts <= self._texts:
            return self
        return other if self._texts <= other._texts else Scrubber(self._texts | other._texts)

    def text(self, text: str) -> str:
        """Return a text with `•••` in place of each secret."""
        return text if len(text) < LEAST_SCRUBBED else self.part(text, 0, len(text))

    def part(self, text: str, start: int, end: int) -> str:
        """Return a part of a text with `•••` in place of each secret, also of one that the part cuts.

        The rest of the text, which may be huge, is not read.
        """
        if not self._texts:
            return text[start:end]
        margin = len(self._forms[0])
        before = max(0, start - margin)
        window = text[before : end + margin]
        at, end = start - before, end - before
        shown: list[str] = []
        for first, last in sorted(place for form in self._forms for place in places_of(form, window)):
            if last > at and first < end:
                if first >= at or not shown:  # else it overlaps the one before
                    shown += (window[at:first], MASK)
                at = last
        return "".join((*shown, window[at:end]))

    def value(self, value: Any) -> Any:
        """Return a JSON value with `•••` in place of each secret within its texts."""
        if not self._texts:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(name) if isinstance(name, str) else name: self.value(inner)
                for name, inner in value.items()
            }
        return [self.value(inner) for inner in value] if isinstance(value, list | tuple) else value


class PartScrubber(Scrubber):
    """Removes also a part of a secret at the beginning or the end of a text, which its sender has cut.

    Example:
        PartScrubber(["hunter22"]).text("401 for hunter")  # '401 for •••'
    """

    def part(self, text: str, start: int, end: int) -> str:
        """Return a part of a text with `•••` in place of each secret, also of one that an end has cut."""
        end = min(end, len(text))
        first = last = 0
        for form in self._forms:
            first = max(first, end_of(form, text[start : min(end, start + len(form))], LEAST_SCRUBBED))
            last = max(last, beginning_of(form, text[max(start, end - len(form)) : end], LEAST_SCRUBBED))
        if first + last >= end - start > 0:
            return MASK
        between = super().part(text, start + first, end - last)
        return f"{MASK if first else ''}{between}{MASK if last else ''}"


def _texts(values: Iterable[Any]) -> Iterable[str]:
    """Return the texts within secret values that are long enough to be looked for."""
    pending = list(values)
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if len(item) >= LEAST_SCRUBBED:
                yield item
        elif isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item


def with_secrets(document: Any, value: Any, paths: Sequence[Path]) -> Any:
    """Return a JSON value with the secrets of the value that it was made of, which pydantic leaves out.

    Raises:
        InvalidInputError: `undeclared_secret`: one is at none of these paths, where it would be sealed.
    """
    from pydantic import SecretBytes, SecretStr

    is_secret = any(not path for path in paths)
    if isinstance(value, SecretStr | SecretBytes):
        if not is_secret:
            raise InvalidInputError(
                "undeclared_secret", "a SecretStr is where its annotation does not show it: name its path"
            )
        found = value.get_secret_value()
        try:
            return found.decode() if isinstance(found, bytes) else found
        except UnicodeDecodeError:
            raise InvalidInputError(
                "undeclared_secret", "the value of a SecretBytes is not UTF-8 text"
            ) from None
    if isinstance(value, dict) and isinstance(document, dict) and len(value) == len(document):
        pairs = zip(document.items(), value.values(), strict=True)
        return {
            name: with_secrets(member, inner, paths if is_secret else _within(paths, name))
            for (name, member), inner in pairs
        }
    if isinstance(value, list | tuple) and isinstance(document, list) and len(value) == len(document):
        return [
            with_secrets(member, inner, paths if is_secret else _within(paths, str(place)))
            for place, (member, inner) in enumerate(zip(document, value, strict=True))
        ]
    return document


def clear_json(value: Any) -> Any:
    """Return a value as `jsonable` does, where nothing would seal a secret.

    Raises:
        InvalidInputError: `undeclared_secret`: it has a `SecretStr`, which pydantic writes as stars.
    """
    found = jsonable(value)
    if found is not value:
        clear_text(value, ANY_SIZE)
    return found


def clear_text(value: Any, limits: Limits, adapter: TypeAdapter[Any] | None = None) -> str:
    """Return a value as JSON text, as `adapter` or `jsonable` writes it, where nothing would seal a secret.

    Raises:
        InvalidInputError: it cannot be JSON, or is too large; `undeclared_secret`: it has a `SecretStr`,
            which pydantic writes as stars.
    """
    text = dumps(
        jsonable(value if adapter is None else adapter.dump_python(value, mode="json", by_alias=True)), limits
    )
    if STARS in text and secrets_within(value):
        raise InvalidInputError(
            "undeclared_secret", "it has a SecretStr, which nothing would seal here: leave it out"
        )
    return text


def secrets_within(value: Any) -> list[str]:
    """Return the secrets of pydantic within a Python value: models, dataclasses and containers."""
    try:
        from pydantic import BaseModel, Secret, SecretBytes, SecretStr
    except ModuleNotFoundError:  # in `grns-client`
        return []

    found: list[str] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Secret | SecretStr | SecretBytes):
            secret = item.get_secret_value()
            found.append(secret.decode(errors="replace") if isinstance(secret, bytes) else str(secret))
        elif isinstance(item, BaseModel):
            pending += [*item.__dict__.values(), *(item.model_extra or {}).values()]
        elif is_dataclass(item) and not isinstance(item, type):
            pending += [getattr(item, one.name, None) for one in fields(item)]
        elif isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, list | tuple | set | frozenset | deque):
            pending += item
    return found


def secret_paths_of(schema: dict[str, Any]) -> list[str]:
    """Return the paths of `secret_places_of`, as users name them."""
    return [".".join(path) for path in secret_places_of(schema)]


def secret_places_of(schema: dict[str, Any]) -> list[Path]:
    """Return the places of a JSON Schema whose values pydantic keeps secret (`SecretStr`, `SecretBytes`).

    A schema that refers to itself has secrets at any depth: those of its first two levels are found.
    """
    found: list[Path] = []
    _find_secrets(schema, schema, (), found, ())
    return list(dict.fromkeys(found))


def _find_secrets(
    node: Any, root: dict[str, Any], path: Path, found: list[Path], within: Collection[str]
) -> None:
    if not isinstance(node, dict):
        return
    if isinstance(reference := node.get("$ref"), str):
        if list(within).count(reference) < 2:
            definition = root.get("$defs", {}).get(reference.rpartition("/")[2])
            _find_secrets(definition, root, path, found, (*within, reference))
        return
    if node.get("format") in ("password", "binary") and node.get("writeOnly"):
        found.append(path)
    for word in ("anyOf", "oneOf", "allOf"):
        for inner in node.get(word, ()):
            _find_secrets(inner, root, path, found, within)
    for name, inner in node.get("properties", {}).items():
        _find_secrets(inner, root, (*path, name), found, within)
    for word in ("items", "additionalProperties"):
        _find_secrets(node.get(word), root, (*path, _ANY), found, within)
    for inner in node.get("prefixItems", ()):
        _find_secrets(inner, root, (*path, _ANY), found, within)
