"""Messages about untrusted values that a pydantic model rejects."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from playground.common.validation import parse
from playground.errors import UserError
from playground.models.config_fields import ConfigError

ModelName = Annotated[str, Field(max_length=8, json_schema_extra={"accepts": "a name on the Hub"})]


class Task(BaseModel, extra="forbid", strict=True):
    seed: int = 0


class Request(BaseModel, extra="forbid", strict=True):
    checkpoint: str = Field(min_length=1, max_length=12)
    models: list[ModelName] = Field([], max_length=3)
    n: int = Field(20, ge=1, le=500)
    rank: int | None = Field(None, ge=0, le=500)
    rate: float = Field(1.0, ge=0, allow_inf_nan=False)
    shots: int = Field(8, ge=0)
    mode: Literal["greedy", "sampled"] = "greedy"
    hidden: bool = False
    size: int | str = 1
    task: Task = Task()
    labels: dict[str, str] = {}
    odd: object = None
    owner: str = ""

    @field_validator("odd")
    @classmethod
    def check_odd(cls, value: object) -> object:
        if value == "config":
            raise ConfigError("d_model", "d_model is 3; it must be even")
        if value == "value":
            raise ValueError("odd is 'value'; give another one")
        return value


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"n": 900}, "n", "n is 900; give a whole number from 1 to 500"),
        ({"n": True}, "n", "n is True; give a whole number from 1 to 500"),
        ({"n": 1.5}, "n", "n is 1.5; give a whole number from 1 to 500"),
        ({"rate": -1.5}, "rate", "rate is -1.5; give a number of at least 0"),
        ({"shots": -2}, "shots", "shots is -2; give a whole number of at least 0"),
        ({"mode": "x"}, "mode", "mode is 'x'; choose one of greedy, sampled"),
        ({"hidden": 1}, "hidden", "hidden is 1; give true or false"),
        ({"size": 1.5}, "size", "size is 1.5; give a whole number or a text"),
        (
            {"checkpoint": "x" * 13},
            "checkpoint",
            "checkpoint has 13 characters; give a text of 1 to 12 characters",
        ),
        ({"models": ["a"] * 4}, "models", "models has 4 values; give a list of at most 3 values"),
        ({"models": ["a", 7]}, "models[1]", "models[1] is 7; give a name on the Hub"),
        ({"task": {"seed": "x"}}, "task.seed", "task.seed is 'x'; give a whole number"),
        ({"task": {"sed": 1}}, "sed", "'sed' is not a field; the fields are seed"),
        ({"labels": []}, "labels", "labels is []; give an object of names and values"),
        ({"labels": {"a": 1}}, "labels.a", "labels.a is 1; give a text"),
        ({"odd": "value"}, "odd", "odd is 'value'; give another one"),
        ({"odd": "config"}, "d_model", "d_model is 3; it must be even"),
    ],
)
def test_message_names_field_value_and_accepted_values(values, field, message):
    with pytest.raises(UserError) as raised:
        parse(Request, {"checkpoint": "copy"} | values)
    assert (str(raised.value), raised.value.field) == (message, field)


def test_missing_field_other_types_and_long_values_have_messages_too():
    with pytest.raises(UserError, match=r"^checkpoint is missing; give a text of 1 to 12 char"):
        parse(Request, {"n": 3})
    with pytest.raises(UserError, match=r"^the value is \[\]; give an object of names and values$"):
        parse(Request, [])
    with pytest.raises(UserError) as raised:
        parse(Request, {"checkpoint": "copy", "mode": "x" * 10_000})
    assert len(str(raised.value)) < 150


def test_accepted_values_become_the_model():
    request = parse(Request, {"checkpoint": "copy", "rank": None, "models": ["gpt2"]})
    assert (request.checkpoint, request.rank, request.models) == ("copy", None, ["gpt2"])
