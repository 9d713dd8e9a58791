"""What a filter can ask for: the kinds of terms, with their help and examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grns.model.task import TaskStatus


@dataclass(frozen=True, slots=True)
class Kind:
    """The subject of a term, for help, completion and forms. `values` has all values, if they are few."""

    name: str
    says: str
    form: Literal["choice", "text", "number", "age"]
    example: str
    values: tuple[str, ...] = ()
    is_whole: bool = False  # no star stands for a part of it

    @property
    def allowed(self) -> str:
        """The values that are allowed, as the end of a sentence."""
        if self.form == "choice":
            return f"{self.name} is one of {', '.join(self.values)}"
        if self.is_whole:
            return f"{self.name} is written whole, without a *, as in {self.example}"
        if self.name == "text":
            return (
                f"text is words, of letters and digits, the last one perhaps with a *, as in {self.example}"
            )
        if self.form == "text":
            return f"in {self.name} a * may only stand at the end of a value, as in {self.example}"
        if self.form == "age":
            return "age is a bound of whole seconds, ten years at most, as in age:>1h or age:<2d"
        most = f" from {self.values[0]} to {self.values[-1]}" if self.values else ""
        return f"{self.name} is a whole number{most}, or a bound, as in {self.example}"


TERMS = (
    Kind("status", "status of the task", "choice", "status:dead,failed", tuple(TaskStatus)),
    Kind("type", "its task type", "text", "type:fetch_*"),
    Kind("pool", "pool that runs it", "text", "pool:worker"),
    Kind("worker", "the worker that runs it now", "text", "worker:worker-7f3a*"),
    Kind("priority", "how urgent it is, 0 critical to 3 background", "number", "priority:<2", tuple("0123")),
    Kind("attempt", "how often it was claimed", "number", "attempt:>2"),
    Kind("age", "how long ago it was created", "age", "age:>1h,<2d"),
    Kind("error", "class or message of its latest error", "text", 'error:Timeout*,"*refused*"'),
    Kind("fingerprint", "the issue that its latest error belongs to", "text", "fingerprint:43cd999a5d664916"),
    Kind("tag", "one of its tags", "text", "tag:billing"),
    Kind("title", "its title", "text", 'title:"Import of*"'),
    Kind("text", "words of its title, description, tags and error", "text", 'text:"quarterly report"'),
    Kind("creator", "who created it, as the submission says", "text", "creator:alice"),
    Kind("trace", "its trace id", "text", "trace:tr-8f678c2a"),
    Kind("key", "its idempotency key", "text", "key:order-17"),
    Kind("id", "its id", "text", "id:gr-06gvth*"),
    Kind("workflow", "the workflow that it is a task of", "text", "workflow:wf-06gvth2k", is_whole=True),
    Kind("needs", "a task or workflow that it needs", "text", "needs:gr-06gvth2k", is_whole=True),
    Kind("waits", "what it waits for", "choice", "waits:time", ("time", "tasks", "signal", "limit", "pause")),
    Kind("discarded", "whether it was discarded: no, unless said", "choice", "discarded:yes",
         ("yes", "no")),
    Kind("payload", "a value in its payload, by the path to it", "text", "payload.order.id:17"),
)  # fmt: skip
KINDS = {kind.name: kind for kind in TERMS}
