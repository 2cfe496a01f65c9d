"""Serve the classes of teachers, which lessons/classes.py stores.

    class/open    returns the code of a new class
    class/join    {code}: counts a pupil
    class/guess   {code, lesson, guess}
    class/poll    {code, lesson}: returns its guesses in a lesson, to its teacher
    class/close   {code}: removes it, for its teacher

A code without a class answers 404.
"""

from typing import Annotated, Any, TypedDict

from pydantic import Field

from playground.lessons import lessons
from playground.lessons.classes import CODE_LENGTH, TTL_S, Classes
from playground.runs.registry import Registry

from .routes import HandlerGroup, handler
from .schemas.base import Name, OwnerRequest
from .schemas.responses import Done


class ClassRequest(OwnerRequest):
    """A request about the class with a code."""

    code: Annotated[str, Field(min_length=CODE_LENGTH, max_length=CODE_LENGTH)]


class ClassGuess(ClassRequest):
    """A guess in a lesson, which the lesson validates."""

    lesson: Any = None
    guess: Any = None


class PollClass(ClassRequest):
    """The lesson whose guesses are sent."""

    lesson: Name = ""


class OpenedClass(TypedDict):
    code: str
    days: int


class ClassGuesses(TypedDict):
    lesson: str
    n_pupils: int
    n_guesses: dict[str, int]
    guesses: list[list[int] | int | str]


class ClassHandlers(HandlerGroup):
    """The handlers of classes."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.classes = Classes(registry.root / "classes")

    @handler("class/open", OwnerRequest, OpenedClass)
    def open(self, request: OwnerRequest) -> dict[str, Any]:
        """Open a class, and return its code."""
        opened = self.classes.open(request.owner, self.registry.client_address())
        return {"code": opened.code, "days": int(TTL_S // 86_400)}

    @handler("class/join", ClassRequest, Done, missing=404)
    def join(self, request: ClassRequest) -> dict[str, Any]:
        """Count a pupil."""
        self.classes.add(request.code, request.owner)
        return {}

    @handler("class/guess", ClassGuess, Done, missing=404)
    def guess(self, request: ClassGuess) -> dict[str, Any]:
        """Store the guess of a pupil, which replaces the one before."""
        lesson = lessons.find(request.lesson)
        guess = lessons.validate_guess(lesson, request.guess)
        self.classes.add(request.code, request.owner, lesson=request.lesson, guess=guess)
        return {}

    @handler("class/poll", PollClass, ClassGuesses, missing=404)
    def poll(self, request: PollClass) -> dict[str, Any]:
        """Return the guesses of a class in a lesson."""
        return self.classes.summary(request.code, request.owner, request.lesson)

    @handler("class/close", ClassRequest, Done, missing=404)
    def close(self, request: ClassRequest) -> dict[str, Any]:
        """Remove a class with its file."""
        self.classes.close(request.code, request.owner)
        return {}
