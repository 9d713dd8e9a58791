"""JSON merge patch (RFC 7396): a document that says what is to be otherwise in another one."""

from __future__ import annotations

from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """Return the target as the patch wants it; neither is changed.

    Members of objects are replaced one by one, and `null` takes one away; anything else, an array too,
    is replaced as a whole.
    """
    if not isinstance(patch, dict):
        return patch
    members = dict(target) if isinstance(target, dict) else {}
    for name, wanted in patch.items():
        if wanted is None:
            members.pop(name, None)
        else:
            members[name] = merged(members.get(name), wanted)
    return members
