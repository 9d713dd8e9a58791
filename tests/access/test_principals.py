"""Scopes: what each lets somebody do, and where."""

from __future__ import annotations

import pytest

from grns.access.principals import SCOPES, Principal, Scope, scopes
from grns.errors import InvalidInputError

OURS, THEIRS = "acme", "rival"


@pytest.mark.parametrize("held", SCOPES)
@pytest.mark.parametrize("asked", SCOPES)
@pytest.mark.parametrize(("bound_to", "place", "is_reached"), [
    (OURS, OURS, True), (OURS, THEIRS, False), (OURS, None, False),
    (None, OURS, True), (None, None, True),
])  # fmt: skip
def test_a_scope_is_good_for_itself_where_its_holder_is_bound(
    held: Scope, asked: Scope, bound_to: str | None, place: str | None, is_reached: bool
) -> None:
    somebody = Principal("key:1", bound_to, frozenset({held}))
    assert somebody.reaches(place) == is_reached
    assert somebody.may(asked, place) == (is_reached and held in (asked, "admin"))


def test_nobody_may_do_anything_without_a_scope() -> None:
    nobody = Principal("key:1", None, frozenset())
    assert not any(nobody.may(scope, place) for scope in SCOPES for place in (OURS, None))


def test_scopes_are_known_by_their_names() -> None:
    assert scopes(["submit", "read", "read"]) == {"read", "submit"}


@pytest.mark.parametrize("names", [[], ["root"], ["read", "root"], [""], ["READ"], ["read "]])
def test_what_is_no_scope_is_refused(names: list[str]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        scopes(names)
    assert refused.value.code == "bad_scope"
