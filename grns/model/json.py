"""Strict JSON: one document, without anything that Postgres would not store unchanged."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass
from decimal import Decimal
from typing import Any, NoReturn

from grns.errors import InvalidInputError

try:
    from orjson import dumps as _fast_encode
except ModuleNotFoundError:  # in `grns-client`
    _fast_encode = None  # type: ignore[assignment]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_DIGITS_OF_INT64 = 20  # with sign; longer texts are not even converted (quadratic time)
_DIGITS_TO_ROUND = 40  # a float has 17; programs write a few more
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum size and depth of a document."""

    document_bytes: int = 256 * 1024
    depth: int = 64
    nodes: int = 10_000


DEFAULT_LIMITS = Limits()
ANY_SIZE = Limits(document_bytes=2**31, depth=500, nodes=2**31)
"""For what was checked before, and has grown by what grns added."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """Replaces a value of a document that cannot be accepted."""

    code: str
    why: str

    def error(self) -> InvalidInputError:
        """Return the error of the value."""
        return InvalidInputError(self.code, self.why)


def parse(text: bytes | str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return the value of one strict JSON document.

    Raises:
        InvalidInputError: `too_large`; `bad_encoding` unless it is UTF-8 without a byte order mark;
            `bad_json`; `duplicate_key`; `bad_number` for NaN, Infinity, integers beyond 64 bits, and floats
            that would become another number; the codes of `check`.
    """
    body = _body(text, limits)
    value = _decode(_utf8(body), _DECODER)
    if not _is_plainly_fine(body, limits):
        check(value, limits)
    return value


def parse_parts(text: bytes | str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return the value of a JSON document; check its parts with `check`.

    An `Unfit` replaces a number, or an object with duplicate keys, that `parse` refuses.
    The document is refused as a whole if it is too large, not JSON in UTF-8, or nested deeper than Python's
    parser goes.
    """
    return _decode(_utf8(_body(text, limits)), _PARTS_DECODER)


def check(value: Any, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse a value that is not plain JSON or that Postgres would not return unchanged."""
    nodes = 0
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        nodes += 1
        if nodes > limits.nodes:
            raise InvalidInputError("too_many_nodes", f"more than {limits.nodes} values in one document")
        if isinstance(item, dict):
            _check_depth(depth, limits)
            for key, member in item.items():
                _check_key(key)
                pending.append((member, depth + 1))
        elif isinstance(item, (list, tuple)):
            _check_depth(depth, limits)
            if len(item) > limits.nodes:
                raise InvalidInputError("too_many_nodes", f"more than {limits.nodes} values in one document")
            pending.extend((member, depth + 1) for member in item)
        else:
            _check_scalar(item)


def dumps(value: Any, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return `value` as JSON text after checking it. Raises InvalidInputError if it cannot be stored."""
    if value is None:  # what most handlers return
        return "null"
    check(value, limits)
    body = _encode(value)
    if len(body) > limits.document_bytes:
        raise InvalidInputError(
            "too_large", f"the document has {len(body)} bytes, {limits.document_bytes} are allowed"
        )
    return body.decode()


def _encode(value: Any) -> bytes:
    if _fast_encode is not None:
        with suppress(TypeError):  # such as a named tuple
            return _fast_encode(value)
    return _ENCODER.encode(value).encode()


def loads_stored(text: str | None) -> Any:
    """Return a stored value; a float that jsonb wrote as a long integer is a float again."""
    return None if text is None else _STORED.decode(text)


def _is_plainly_fine(body: bytes, limits: Limits) -> bool:
    """Return whether a short text cannot exceed a limit, so that its values need no check.

    Each value takes a byte, each level a bracket; without a `\\u` escape there is no U+0000
    (JSON has no raw one) and no lone surrogate (UTF-8 has none).
    """
    return (
        len(body) <= limits.nodes
        and b"\\u" not in body
        and body.count(b"{") + body.count(b"[") <= limits.depth
    )


def _stored_int(digits: str) -> int | float:
    if len(digits) <= _DIGITS_OF_INT64:
        number = int(digits)
        if INT64_MIN <= number <= INT64_MAX:
            return number
    return float(digits)


def _body(text: bytes | str, limits: Limits) -> bytes:
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(body) > limits.document_bytes:
        raise InvalidInputError(
            "too_large", f"the document has {len(body)} bytes, {limits.document_bytes} are allowed"
        )
    return body


def _utf8(body: bytes) -> str:
    if body.startswith(_BOMS):
        raise InvalidInputError(
            "bad_encoding", "the document starts with a byte order mark; plain UTF-8 is needed"
        )
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            "bad_encoding", f"the document is not UTF-8: byte {error.start} does not fit"
        ) from error


def _decode(text: str, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(text)
    except RecursionError as error:
        raise InvalidInputError("too_deep", "the document is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            "bad_json", f"not one JSON document: {error.msg} at character {error.pos}"
        ) from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise InvalidInputError("duplicate_key", "an object has the same key twice")
    return members


def _int(digits: str) -> int:
    if len(digits) <= _DIGITS_OF_INT64:
        number = int(digits)
        if INT64_MIN <= number <= INT64_MAX:
            return number
    raise InvalidInputError("bad_number", "an integer does not fit in 64 bits")


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidInputError("bad_number", "a number is too large for a 64-bit float")
    if len(digits) > _DIGITS_TO_ROUND or abs(number) < sys.float_info.min:
        _check_exact(digits, number)
    return number


def _check_exact(digits: str, number: float) -> None:
    """Refuse a text whose value a float does not keep: too small, or with more digits than are rounded.

    Source: RFC 8259, section 6: such numbers expect more precision than JSON's readers have.
    """
    significant = digits.lower().partition("e")[0].replace(".", "").lstrip("-").strip("0")
    if not significant or (len(significant) <= _DIGITS_TO_ROUND and abs(number) >= sys.float_info.min):
        return
    if number == 0.0 or Decimal(digits) != Decimal(repr(number)):
        raise InvalidInputError("bad_number", "a number does not fit in a 64-bit float; pass it as a string")


def _constant(name: str) -> NoReturn:
    raise InvalidInputError("bad_number", f"{name} is not JSON")


def _or_unfit(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def hook(raw: Any) -> Any:
        try:
            return read(raw)
        except InvalidInputError as error:
            return Unfit(error.code, str(error))

    return hook


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_STORED = json.JSONDecoder(parse_int=_stored_int)
_DECODER = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_int, parse_float=_float, parse_constant=_constant
)
_PARTS_DECODER = json.JSONDecoder(
    object_pairs_hook=_or_unfit(_members),
    parse_int=_or_unfit(_int),
    parse_float=_or_unfit(_float),
    parse_constant=_or_unfit(_constant),
)


def _check_depth(depth: int, limits: Limits) -> None:
    if depth > limits.depth:
        raise InvalidInputError("too_deep", f"nested more than {limits.depth} levels deep")


def _check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise InvalidInputError("bad_type", f"object keys are strings, not {type(key).__name__}")
    _check_string(key)


def _check_scalar(item: Any) -> None:
    if isinstance(item, str):
        _check_string(item)
    elif item is None or isinstance(item, bool):
        return
    elif isinstance(item, int):
        if not INT64_MIN <= item <= INT64_MAX:
            raise InvalidInputError("bad_number", "an integer does not fit in 64 bits")
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise InvalidInputError("bad_number", f"{item} is not JSON")
    elif isinstance(item, Unfit):
        raise item.error()
    else:
        raise InvalidInputError(
            "bad_type", f"{type(item).__name__} is not a JSON type: pass a pydantic model or a dataclass"
        )


def _check_string(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                "bad_string", "a string has a lone surrogate, which is no character"
            ) from error
    if "\x00" in text:
        raise InvalidInputError(
            "bad_string", "a string has the character U+0000, which Postgres cannot store"
        )


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target changed by a merge patch (RFC 7396); neither argument is changed.

    Members of objects are replaced one by one, and `null` removes one; anything else, arrays too, is replaced
    as a whole.
    """
    if not isinstance(patch, dict):
        return patch
    members = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            members.pop(name, None)
        else:
            members[name] = merge_patch(members.get(name), value)
    return members


_JSON_TYPES = frozenset({dict, str, int, float, bool})


def jsonable(value: Any) -> Any:
    """Return a pydantic model, a dataclass or a list of them as a JSON value, and anything else as it is."""
    if type(value) is list:
        return [_plain(one) for one in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    if value is None or type(value) in _JSON_TYPES:
        return value
    if isinstance(value, type) or not (hasattr(value, "__pydantic_serializer__") or is_dataclass(value)):
        return value
    try:
        from pydantic_core import to_jsonable_python
    except ModuleNotFoundError:  # in `grns-client`
        return asdict(value)
    return to_jsonable_python(value, by_alias=True)
