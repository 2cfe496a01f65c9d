"""A text that several modules show is in one place: common/messages.py or shared/strings.js."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "playground"
STATIC = ROOT / "ui" / "static"
MIN_CHARS, MIN_SPACES = 30, 4  # of a message in Python; shorter texts are labels
LABEL = re.compile(r"\"([A-Z][^\"\n$<>{}]{11,})\"")  # in scripts, also in templates


def python_texts(source: str) -> Iterator[str]:
    """Yield the messages of a module; {} stands for each value in an f-string."""
    tree = ast.parse(source)
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in parts | statements:  # a part of an f-string, or a docstring
            continue
        if isinstance(node, ast.JoinedStr):
            pieces = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            text = "".join(pieces)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if len(text) >= MIN_CHARS and text.count(" ") >= MIN_SPACES:
            yield text


def script_texts(source: str) -> Iterator[str]:
    """Yield the texts of a script that begin with a capital letter and have several words."""
    code = re.sub(r"^\s*(//|/\*|\*).*$", "", source, flags=re.MULTILINE)
    yield from (text for text in LABEL.findall(code) if " " in text)


def repeated(files: list[Path], find_texts: Callable[[str], Iterator[str]]) -> dict[str, list[str]]:
    """Return the texts that occur in more than one file, with the names of the files."""
    files_by_text = defaultdict(set)
    for path in files:
        for text in find_texts(path.read_text(encoding="utf-8")):
            files_by_text[text].add(str(path.relative_to(ROOT)))
    return {text: sorted(names) for text, names in files_by_text.items() if len(names) > 1}


def test_messages_of_several_modules_are_in_one_module():
    texts = repeated(sorted(ROOT.rglob("*.py")), python_texts)
    assert texts == {}


def test_texts_of_several_scripts_are_in_one_module():
    scripts = [path for path in sorted(STATIC.rglob("*.js")) if "vendor" not in path.parts]
    assert repeated(scripts, script_texts) == {}


def test_repeated_texts_are_recognized(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for name in "ab":
        (tmp_path / f"{name}.js").write_text('x = html`<a title="Press Run to begin">`;')
        (tmp_path / f"{name}.py").write_text('m = f"the model {n} has no state to resume from"')
    assert list(repeated(sorted(tmp_path.glob("*.js")), script_texts)) == ["Press Run to begin"]
    assert list(repeated(sorted(tmp_path.glob("*.py")), python_texts)) == [
        "the model {} has no state to resume from"
    ]
