"""Requests of the Learn tab."""

from typing import Annotated, Any

from pydantic import Field

from playground.lessons.bugs import STEPS_RANGE

from .base import Index, OwnerRequest


class StartLesson(OwnerRequest):
    """A lesson with the user's prediction, which the lesson validates."""

    lesson: Any = None
    prediction: Any = None
    options: Any = None


class StartBug(OwnerRequest):
    """A bug to train, and the seed that chooses it and the initial weights.

    The responses hide the name of a hidden bug until a guess is correct.
    """

    bug: Any = None
    is_hidden: bool = False
    seed: Index
    steps: Annotated[int, Field(ge=STEPS_RANGE[0], le=STEPS_RANGE[1])]


class MeasurementRequest(OwnerRequest):
    """A measurement of the owner."""

    id: str | None = None


class SubmitGuess(MeasurementRequest):
    """A guess of the bug or of its line, or the request to reveal it."""

    bug: str | None = None
    line: int | None = None
    reveal: bool = False


class AnswerKey(OwnerRequest):
    """The first seed of the answer key."""

    first: Index = 0
