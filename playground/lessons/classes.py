"""The classes of teachers: the guesses of their pupils, without accounts or names.

<folder>/<code>.jsonl   who opened a class and when, then each pupil, and each guess

Teacher and pupils are hashes of the keys of their browsers; those of a pupil differ between
classes. A file is removed when its teacher closes the class, and after `TTL_S`.
"""

import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playground.common.atomic_write import clean_up_stale, storing, write_file
from playground.errors import UserError
from playground.jobs.admission import Client, limit
from playground.runs.access import NOT_FOUND
from playground.runs.record import owner_id

from .lessons import Guess

TTL_S = 7 * 24 * 3600.0
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels, so no words
CODE_LENGTH = 6
CLASS_MISSING = "no class has this code: ask your teacher for the code, or open a new class"


@dataclass(eq=False)
class Classroom:
    """A class. `guesses` has the latest one of each pupil, by lesson."""

    code: str
    teacher: str
    opened_at: float
    address: str = ""  # in memory only
    pupils: set[str] = field(default_factory=set)
    guesses: dict[str, dict[str, Guess]] = field(default_factory=dict)

    def add(self, line: dict[str, Any]) -> None:
        """Add a pupil, with a guess if the line has one."""
        self.pupils.add(line["pupil"])
        if "guess" in line:
            self.guesses.setdefault(line["lesson"], {})[line["pupil"]] = line["guess"]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Return what its file contains."""
        yield {"teacher": self.teacher, "opened_at": self.opened_at}
        yield from ({"pupil": pupil} for pupil in sorted(self.pupils))
        for lesson, guesses in self.guesses.items():
            for pupil, guess in guesses.items():
                yield {"pupil": pupil, "lesson": lesson, "guess": guess}


class Classes:
    """The classes of a server. All methods are safe to call from any thread."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock
        self._lock = threading.RLock()
        self._classes: dict[str, Classroom] = {}
        clean_up_stale(folder)
        for path in sorted(folder.glob("*.jsonl")):
            try:
                self._classes[path.stem] = _read(path)
            except (ValueError, OSError, KeyError, TypeError) as error:
                logging.getLogger(__name__).warning("the class %s is damaged: %r", path, error)
        self._remove_old()

    def open(self, owner: str, address: str) -> Classroom:
        """Open a class. Raises UserError when the owner, the address or the server has too many."""
        teacher = owner_id(owner)
        with self._lock:
            self._remove_old()
            present = {each: Client(each.address, each.teacher) for each in self._classes.values()}
            empty = [each for each in present if not each.pupils]
            limit("classes").admit_or_evict(Client(address, teacher), present, empty, self._remove)
            code = "".join(secrets.choice(LETTERS) for _ in range(CODE_LENGTH))
            opened = Classroom(code, teacher, self._clock(), address)
            self._write(opened)
            self._classes[code] = opened
        return opened

    def add(self, code: str, owner: str, **guess: Any) -> None:
        """Add a pupil to a class, or a guess: a `lesson` with a `guess`, which replaces another.

        Raises UserError when there is no such class, it is full, or the disk cannot store it.
        """
        pupil = hashlib.sha256(f"{code} {owner}".encode()).hexdigest()[:16]
        with self._lock:
            classroom = self._find(code)
            if pupil not in classroom.pupils:
                limit("pupils-of-a-class").admit(Client(), [Client()] * len(classroom.pupils))
            elif not guess:
                return
            classroom.add({"pupil": pupil, **guess})
            self._write(classroom)

    def summary(self, code: str, owner: str, lesson: str) -> dict[str, Any]:
        """Return the guesses in a lesson, and the numbers of pupils and guesses."""
        with self._lock:
            classroom = self._find_for_teacher(code, owner)
            return {
                "lesson": lesson,
                "n_pupils": len(classroom.pupils),
                "n_guesses": {name: len(guesses) for name, guesses in classroom.guesses.items()},
                "guesses": list(classroom.guesses.get(lesson, {}).values()),
            }

    def close(self, code: str, owner: str) -> None:
        """Remove the class of a teacher, with its file. Raises UserError for any other user."""
        with self._lock:
            self._remove(self._find_for_teacher(code, owner))

    def _find(self, code: str) -> Classroom:
        self._remove_old()
        if code not in self._classes:
            raise UserError(CLASS_MISSING, code=NOT_FOUND)
        return self._classes[code]

    def _find_for_teacher(self, code: str, owner: str) -> Classroom:
        classroom = self._find(code)
        if classroom.teacher != owner_id(owner):
            raise UserError(CLASS_MISSING, code=NOT_FOUND)
        return classroom

    def _remove_old(self) -> None:
        for each in list(self._classes.values()):
            if self._clock() - each.opened_at > TTL_S:
                self._remove(each)

    def _remove(self, removed: Classroom) -> int:
        self._path(removed).unlink(missing_ok=True)
        self._classes.pop(removed.code, None)
        return 1

    def _path(self, classroom: Classroom) -> Path:
        return self.folder / f"{classroom.code}.jsonl"

    def _write(self, classroom: Classroom) -> None:
        lines = [json.dumps(line, separators=(",", ":")) + "\n" for line in classroom.lines()]
        with storing("the class"):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(self._path(classroom), "".join(lines).encode())


def _read(path: Path) -> Classroom:
    complete = path.read_bytes().rpartition(b"\n")[0]  # the last line may be torn
    first, *lines = map(json.loads, complete.splitlines())
    classroom = Classroom(path.stem, **first)
    for line in lines:
        classroom.add(line)
    return classroom
