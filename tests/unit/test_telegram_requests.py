"""Our requests as aiogram's typed methods judge them: they know each parameter of the Bot API and its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiogram.methods
import pytest
from pydantic import BaseModel

from adapters.telegram.methods import Method
from adapters.telegram.plan import File, Form, Step
from adapters.telegram.render import render
from adapters.telegram.sending import Target, edit_of, method_of
from gateway.types import Address, Button, Outgoing

TEXT = render("**bold** and `code`, [a link](https://example.org)\n```python\nx = 1\n```")
BUTTONS = ((Button("Yes", "y"), Button("No", "n")), (Button("Later", "l"),))


def file(form: Form, number: int = 0) -> File:
    return File(form, f"näme {number}.bin", b"content")


def strangers(model: BaseModel) -> list[str]:
    """Return the fields of a request, at any depth, that aiogram does not know."""
    found = [f"{type(model).__name__}.{name}" for name in model.model_extra or ()]
    for value in dict(model).values():
        for one in _inside(value):
            found += strangers(one)
    return found


def _inside(value: Any) -> list[BaseModel]:
    if isinstance(value, BaseModel):
        return [value]
    return [one for each in value for one in _inside(each)] if isinstance(value, list) else []


def judge(method: Method) -> None:
    kind = getattr(aiogram.methods, method.name[0].upper() + method.name[1:])
    assert (
        strangers(kind(**{name: value for name, value in method.params.items() if value is not None})) == []
    )


STEPS: Mapping[str, Step] = {
    "text": Step(render("hi")),
    "formatted": Step(TEXT, buttons=BUTTONS),
    **{form.value: Step(TEXT, (file(form),), BUTTONS) for form in Form},
    "no caption": Step(files=(file(Form.PHOTO),)),
    "album": Step(TEXT, (file(Form.PHOTO, 1), file(Form.VIDEO, 2))),
    "documents": Step(TEXT, (file(Form.DOCUMENT, 1), file(Form.DOCUMENT, 2))),
    "music": Step(files=(file(Form.AUDIO, 1), file(Form.AUDIO, 2))),
}


@pytest.mark.parametrize("target", [Target("7"), Target("-100123", 5, 9)], ids=["chat", "topic"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_each_form_of_a_message_is_one_that_aiogram_would_send(step: Step, target: Target) -> None:
    method = method_of(step, target, link_preview=False)
    judge(method)
    told = str(method.params)
    assert [key for key in method.files if f"attach://{key}'" in told] == list(method.files)
    assert len(method.files) == len(step.files)


def test_an_edit_is_one_that_aiogram_would_send() -> None:
    message = Outgoing(
        key="k", address=Address("telegram", "7", "5"), text="**now**", buttons=BUTTONS, reply_to="3"
    )
    method = edit_of(message, 12, link_preview=False)
    judge(method)
    assert method.params["message_id"] == 12
    assert "reply_parameters" not in method.params


def test_the_judge_sees_a_parameter_that_is_not_there() -> None:
    entity = {"type": "bold", "offset": 0, "length": 1, "kind": "bold"}
    with pytest.raises(AssertionError, match=r"SendMessage\.txt"):
        judge(Method("sendMessage", {"chat_id": 7, "text": "x", "txt": "y"}))
    with pytest.raises(AssertionError, match=r"MessageEntity\.kind"):
        judge(Method("sendMessage", {"chat_id": 7, "text": "x", "entities": [entity]}))
