"""What a handler asks people: questions with a form, and approvals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from grns.errors import Fail, InvalidInputError, WaitTimeoutError
from grns.model.duration import seconds_named
from grns.model.form_shape import shape_of
from grns.model.question import APPROVAL, PersonAnswer, Question, question
from grns.worker.async_only import async_only

if TYPE_CHECKING:
    from grns.worker.steps import AttemptSteps

FormT = TypeVar("FormT")


class PersonMethods:
    """The part of a `Context` that asks people."""

    if TYPE_CHECKING:

        def _own_steps(self, name: str) -> AttemptSteps: ...

    @overload
    async def ask_person(
        self, name: str, form: type[FormT], /, *, title: str, body: str | None = None, evidence: Any = None,
        to: Sequence[str] = (), timeout: float | timedelta | None = None, default: FormT | None = None,
    ) -> PersonAnswer[FormT]: ...  # fmt: skip
    @overload
    async def ask_person(
        self, name: str, form: Mapping[str, Any], /, *, title: str, body: str | None = None,
        evidence: Any = None, to: Sequence[str] = (), timeout: float | timedelta | None = None,
        default: dict[str, Any] | None = None,
    ) -> PersonAnswer[dict[str, Any]]: ...  # fmt: skip

    @async_only
    async def ask_person(
        self,
        name: str,
        form: Any,
        /,
        *,
        title: str,
        body: str | None = None,
        evidence: Any = None,
        to: Sequence[str] = (),
        timeout: float | timedelta | None = None,
        default: Any = None,
    ) -> PersonAnswer[Any]:
        """Ask a person, and wait for the answer. Meanwhile the slot is free, as in `sleep`.

        The question stands in the dashboard, in `grns task question list` and at `GET /questions`, and the
        log has `evt.question.asked`. The answer is a step: later attempts get the same one. An answer is
        bound to all that is shown: if an attempt shows something else before it has taken the answer, it asks
        anew. So take what is shown from the payload or from steps.

        Args:
            name: as of `step`.
            form: pydantic model, dataclass or TypedDict of the answer, whose fields are text, numbers, yes or
                no, or one or several of a list; or the JSON Schema of such an object: the answer is a dict.
            title: one line.
            body: more text.
            evidence: JSON that is shown beside it.
            to: whom to ask, in your own words, such as `["role:finance"]`: lists can be limited to it.
            timeout: maximum time to wait, in seconds or as a `timedelta`. Defaults to no limit.
            default: the value if no one answers in time, with a `timeout`. Defaults to an error.

        Raises:
            WaitTimeoutError: no one has answered in time, and there is no default.
            InvalidInputError: `bad_handler`: an argument is invalid.
            Fail: `answer_refused`: the answer fits the form, and the model refuses it.

        Example:
            class Refund(BaseModel):
                amount: float

            answer = await ctx.ask_person("refund", Refund, title=f"Refund order {order.id}?")
            await ctx.step("refund", refund, order, answer.value.amount)
        """
        shown, read = _form(form, title, name)
        asked = question(kind="question", title=title, body=body, evidence=evidence, form=shown, to=to)
        return await self._ask(name, asked, _seconds(timeout, default), default, read)

    @async_only
    async def approve(
        self,
        name: str,
        /,
        *,
        title: str,
        body: str | None = None,
        evidence: Any = None,
        to: Sequence[str] = (),
        timeout: float | timedelta | None = None,
        default: bool | None = None,
    ) -> PersonAnswer[bool]:
        """Ask a person to approve something, as `ask_person` does: `value` says whether they did.

        The key that submitted the task cannot approve it.

        Args, Raises: as of `ask_person`.

        Example:
            approval = await ctx.approve("pay", title="Pay 900 €?", evidence=invoice, timeout=86_400)
            if not approval.value:
                raise grns.Fail(f"refused by {approval.answered_by}: {approval.comment}")
        """
        asked = question(kind="approval", title=title, body=body, evidence=evidence, form=APPROVAL, to=to)
        return await self._ask(
            name, asked, _seconds(timeout, default), default, lambda answer: answer["approved"] is True
        )

    async def _ask(
        self, name: str, asked: Question, seconds: float | None, default: Any, read: Any
    ) -> PersonAnswer[Any]:
        found = await self._own_steps("ctx.ask_person()").answer(name, asked, seconds)
        if found is None and default is None:
            raise WaitTimeoutError(f"no one has answered {asked.title!r} in time")
        if found is None:
            return PersonAnswer(default, asked.digest, is_timed_out=True)
        return PersonAnswer(
            read(found["answer"]),
            asked.digest,
            found["answered_by"],
            datetime.fromtimestamp(found["answered_at"], UTC),
            found["comment"],
        )


def _seconds(timeout: float | timedelta | None, default: Any) -> float | None:
    if timeout is None and default is not None:
        raise InvalidInputError("bad_handler", "default: pass it with a timeout")
    return seconds_named("timeout", timeout, code="bad_handler")


def _form(form: Any, title: str, name: str) -> tuple[Mapping[str, Any], Callable[[Any], Any]]:
    """Return the JSON Schema of a form, and what reads an answer."""
    is_schema = isinstance(form, Mapping)
    try:
        from pydantic import TypeAdapter, ValidationError

        from grns.model.envelope import first_problem
        from grns.model.form import form_of
    except ModuleNotFoundError:  # in `grns-client`: the API checks more of it
        if is_schema:
            return shape_of(form), lambda answer: answer
        raise InvalidInputError(
            "bad_handler", "form: pass a JSON Schema; for models install grns instead of grns-client"
        ) from None
    if is_schema:
        return form_of(form), lambda answer: answer
    adapter: TypeAdapter[Any] = TypeAdapter(form)

    def read(answer: Any) -> Any:
        try:
            return adapter.validate_json(json.dumps(answer))
        except ValidationError as error:
            problem = first_problem(error)
        raise Fail(
            f"the answer to {title!r} fits the form, and {form!r} refuses it: {problem}. To ask again:"
            f" grns task reset ID --to 'ask {name}'",
            error_class="answer_refused",
        )

    return form_of(form), read
