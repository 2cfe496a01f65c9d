"""Classes store guesses without names, in one file each, for a week."""

import json

import pytest

from playground.errors import UserError
from playground.lessons.classes import CODE_LENGTH, LETTERS, TTL_S, Classes
from playground.lessons.lessons import LESSONS, validate_guess

TEACHER, OTHER = "t" * 32, "o" * 32
CURVE = [5 * i for i in range(21)]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def classes(tmp_path, clock):
    return Classes(tmp_path / "classes", clock)


@pytest.fixture
def code(classes):
    return classes.open(TEACHER, "192.0.2.1").code


def pupil(number):
    return f"{number:032d}"


def files(classes):
    return [path.name for path in classes.folder.glob("*")]


def test_a_code_has_letters_that_form_no_words(code):
    assert len(code) == CODE_LENGTH
    assert set(code) <= set(LETTERS)
    assert not set("AEIOUY01") & set(LETTERS)


def test_the_latest_guess_of_each_pupil_counts(classes, code):
    classes.add(code, pupil(1))
    for guess in (1, 2):
        classes.add(code, pupil(2), lesson="attention", guess=guess)
    classes.add(code, pupil(1), lesson="learning", guess=CURVE)
    assert classes.summary(code, TEACHER, "attention") == {
        "lesson": "attention",
        "n_pupils": 2,
        "n_guesses": {"attention": 1, "learning": 1},
        "guesses": [2],
    }


def test_a_class_survives_a_restart_with_a_torn_last_line(classes, code, clock):
    classes.add(code, pupil(1), lesson="learning", guess=CURVE)
    with (classes.folder / f"{code}.jsonl").open("a") as file:
        file.write('{"pupil": "x", "les')
    restarted = Classes(classes.folder, clock)
    restarted.add(code, pupil(2), lesson="learning", guess=CURVE)
    for each in (restarted, Classes(classes.folder, clock)):
        assert each.summary(code, TEACHER, "learning")["guesses"] == [CURVE, CURVE]


@pytest.mark.parametrize("end", ["closed", "expired", "expired at a start"])
def test_nothing_remains_of_a_class_that_ended(classes, code, clock, end):
    classes.add(code, pupil(1), lesson="attention", guess=3)
    if end == "closed":
        classes.close(code, TEACHER)
    else:
        clock.now = TTL_S + 1
        classes = Classes(classes.folder, clock) if end == "expired at a start" else classes
    for call in (
        lambda: classes.add(code, pupil(1)),
        lambda: classes.summary(code, TEACHER, ""),
        lambda: classes.close(code, TEACHER),
    ):
        with pytest.raises(UserError, match="no class has this code") as error:
            call()
        assert error.value.code == "not-found"
    assert files(classes) == []


def test_only_its_teacher_reads_and_closes_a_class(classes, code):
    for call in (classes.close, lambda *who: classes.summary(*who, "")):
        with pytest.raises(UserError, match="no class has this code"):
            call(code, OTHER)
    assert files(classes) == [f"{code}.jsonl"]


def test_a_file_has_no_key_address_or_repeated_name(classes, code):
    other = classes.open(TEACHER, "192.0.2.1").code
    for each in (code, other):
        classes.add(each, pupil(1), lesson="attention", guess=3)
    texts = [(classes.folder / f"{each}.jsonl").read_text() for each in (code, other)]
    for secret in (TEACHER, pupil(1), "192.0.2.1"):
        assert not any(secret in text for text in texts)
    names = [json.loads(text.splitlines()[-1])["pupil"] for text in texts]
    assert names[0] != names[1]


def test_many_guesses_of_one_pupil_leave_a_small_file(classes, code):
    for i in range(20):
        classes.add(code, pupil(1), lesson="attention", guess=i % 11)
    assert len((classes.folder / f"{code}.jsonl").read_text().splitlines()) == 3


def test_a_full_class_admits_no_more_pupils(classes, code, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "pupils-of-a-class.total=2")
    for number in (1, 2, 1):
        classes.add(code, pupil(number))
    with pytest.raises(UserError, match="2 pupils in a class, which is the maximum"):
        classes.add(code, pupil(3))


def test_an_empty_class_makes_way_for_a_new_one(classes, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "classes.total=2,classes.per-address=2")
    used, _ = (classes.open(pupil(number), "").code for number in (1, 2))
    classes.add(used, pupil(9))
    last = classes.open(pupil(3), "").code
    assert {name[:CODE_LENGTH] for name in files(classes)} == {used, last}
    monkeypatch.setenv("PLAYGROUND_LIMITS", "classes.per-owner=1")
    with pytest.raises(UserError, match="you have 1 classes"):
        classes.open(pupil(3), "")


def test_a_damaged_file_ends_no_start(classes, code, clock, caplog):
    damaged = ["", "[]", '{"x": 1}', "[" * 900, '{"teacher": "t", "opened_at": 1}\n{}\n']
    for i, text in enumerate(damaged):
        (classes.folder / f"DAMAG{LETTERS[i]}.jsonl").write_text(text)
    assert Classes(classes.folder, clock).summary(code, TEACHER, "")["n_pupils"] == 0
    assert caplog.text.count("is damaged") == len(damaged)


@pytest.mark.parametrize(
    ("lesson", "guess"),
    [
        ("learning", CURVE[1:]),
        ("learning", [*CURVE[1:], float("nan")]),
        ("learning", [*CURVE[1:], 101]),
        ("learning", [*CURVE[1:], True]),
        ("learning", [CURVE] * 21),
        ("learning", [1] * 10_000),
        ("learning", None),
        ("attention", 12),
        ("attention", "3"),
        ("attention", float("inf")),
        ("heads", "five"),
        ("heads", ["one head"]),
        ("heads", "x" * 100_000),
    ],
)
def test_a_guess_of_another_shape_is_refused(lesson, guess):
    with pytest.raises(UserError) as error:
        validate_guess(LESSONS[lesson], guess)
    assert error.value.field.startswith("guess")
    assert len(str(error.value)) < 200


def test_every_lesson_has_a_guess():
    for lesson in LESSONS.values():
        n_points = min(lesson.high - lesson.low, 20) + 1
        guess = {"curve": [50] * n_points, "number": lesson.low}.get(lesson.kind)
        guess = next(iter(lesson.choices)) if guess is None else guess
        assert validate_guess(lesson, guess) == guess
