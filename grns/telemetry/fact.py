"""What a fact is. Each is emitted where it happens, once; what is made of it is decided in the leaves."""

from __future__ import annotations

from typing import ClassVar


class Fact:
    """Something that happened: a dataclass. `level` is that of the log line; `event` its name.

    Of one that `repeats` while a trouble lasts, the log shows fewer and fewer, whatever the fields that
    it `varies` in say.
    """

    level: ClassVar[str] = "info"
    event: ClassVar[str] = "fact"
    repeats: ClassVar[bool] = False
    varies: ClassVar[tuple[str, ...]] = ()
    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
