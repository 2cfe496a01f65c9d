"""The reading path of docs/reading.md: files, functions and commands that exist."""

import ast
import re
import tokenize

import pytest

from tests.support.app_server import ROOT

GUIDE = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## \d\. .+?\n(.*?)(?=^## )", GUIDE, re.M | re.S)
MAX_LINES = 600
SPACE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def file_of(section):
    return ROOT / re.search(r"\]\(\.\./(playground/[\w/]+\.py)\)", section)[1]


def docstring_lines(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from range(node.lineno, node.end_lineno + 1)


def lines_of_code(path):
    """Count the lines that are not blank and no comment or docstring."""
    with tokenize.open(path) as file:
        tokens = [
            each for each in tokenize.generate_tokens(file.readline) if each.type not in SPACE
        ]
    lines = {line for each in tokens for line in range(each.start[0], each.end[0] + 1)}
    return len(lines - set(docstring_lines(ast.parse(path.read_text(encoding="utf-8")))))


def test_the_path_from_attention_to_a_trained_model_is_short():
    assert len(SECTIONS) == 9
    assert sum(lines_of_code(file_of(section)) for section in SECTIONS) <= MAX_LINES


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: file_of(section).stem)
def test_each_exercise_has_a_function_and_a_command_that_checks_it(section):
    exercise, command = re.search(
        r"^Exercise: (.*?)\n\n```\n(.+?)\n```", section, re.M | re.S
    ).groups()
    defined = {
        node.name
        for node in ast.walk(ast.parse(file_of(section).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    *_, function = re.findall(r"rite `(?:\w+\.)?(\w+)`", exercise)
    assert function in defined
    tests = re.findall(r"tests/[\w/]+\.py", command)
    assert tests
    sources = [(ROOT / each).read_text(encoding="utf-8") for each in tests]
    for part in re.findall(r"-k (\w+)", command):
        assert re.search(rf"^def test_\w*{part}", sources[0], re.M)
