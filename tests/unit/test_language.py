"""The code, the tests and the documents use the terms of docs/glossary.md."""

import io
import re
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The spelling is American, as in PyTorch, matplotlib and CSS.
BRITISH = (
    r"colour(?:s|ed)?|behaviours?|neighbour(?:s|ing)?|grey|(?:un)?labelled|modelling|"
    r"licences?|(?:normal|initial|optim|general|summar|token|serial|organ|recogn)"
    r"is(?:e|ed|es|ing|ation)"
)

# in identifiers, as one of the words that underscores or capital letters separate
BANNED_IN_NAMES = re.compile(
    r"told|tells?|heard?|ask(s|ed|ing|er)?|look(s|ed|ing)|sa(y|ys|id)|errands?|weigh(s|ed)?|kept|"
    r"found|taken|given|shown|apart|loud|loudness|grown|recipes?|whoever|somebody|nobody|floors?|"
    r"rooms?|eyes|house|gone|gist|came|goes|wanted|" + BRITISH
)
# in comments, docstrings, messages and texts of the page
BANNED_IN_PROSE = re.compile(
    r"\b(told|tells?|asked|asks|looks? at|looked at|who looks|may look|heard|said|says|errands?|"
    r"weighs?|visitors?|strangers?|whoever|somebody|someone|nobody|everybody|anybody|"
    r"taking away|leaving alone|loud(?:er|ness)?|recipes?|floors?|way out|write-up|"
    r"rooms?|eyes?|house|symbol vectors?|out of sight|thrown away|gone|owed?|" + BRITISH + r")\b",
    re.IGNORECASE,
)
# words that are right where they stand, with the reason
ALLOWED = {
    "floor": "the function of mathematics",
    "floor_to": "the function of mathematics",
    "loud": "the name of a bug in saved progress",
}
# of hypothesis, and of files
LIBRARY_NAMES = {"given", "tell"}
MAX_HITS = 40
FOLDERS = ("app.py", "playground", "benchmarks", "tests", "scripts")


def python_words(path: Path):
    """Yield the names and the text pieces of a Python file: (is a name, line, text)."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield True, token.start[0], token.string
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            yield False, token.start[0], token.string


def script_words(path: Path):
    """Yield the names and the lines of a script or style sheet, as `python_words` does."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        code = line.replace("Math.floor", "")
        yield False, number, code
        strings = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|//.*|/\*.*"
        for name in re.findall(r"[A-Za-z_$][\w$]*", re.sub(strings, "", code)):
            yield True, number, name


def document_words(path: Path):
    """Yield the lines of a document, as `python_words` does."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        yield False, number, line


WORDS = {".py": python_words, ".md": document_words, ".toml": document_words}


def banned_words(is_name: bool, text: str) -> list[str]:
    if not is_name:
        return [match.group().lower() for match in BANNED_IN_PROSE.finditer(text)]
    if text in LIBRARY_NAMES:
        return []
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    words = words.replace("not_found", "").split("_")  # the term of HTTP and of exceptions
    return [text] if any(map(BANNED_IN_NAMES.fullmatch, words)) else []


def listed_files(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    command = ["git", "ls-files", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.splitlines() if "/vendor/" not in name]
    return [ROOT / name for name in names if name.endswith(suffixes)]


def checked_files() -> list[Path]:
    suffixes = (".py", ".js", ".mjs", ".css", ".md", ".toml")
    files = listed_files(*FOLDERS, "*.md", suffixes=suffixes)
    # this file lists the words, and benchmarks/RESULTS.md is generated
    return [path for path in files if path != Path(__file__) and path.name != "RESULTS.md"]


def test_code_tests_and_documents_use_the_glossary():
    hits, used = [], Counter()
    for path in checked_files():
        words = WORDS.get(path.suffix, script_words)
        for is_name, line, text in words(path):
            for word in banned_words(is_name, text):
                used[word] += 1
                if word not in ALLOWED:
                    hits.append(f"{path.relative_to(ROOT)}:{line}: {word}")
    assert hits == []
    assert sum(used.values()) < MAX_HITS, used
    assert set(ALLOWED) <= set(used), "an allowed word is no longer used"


def test_no_line_is_longer_than_100_characters():
    suffixes = (".py", ".js", ".css", ".html", ".toml", ".ci/run", ".ci/fresh", ".ci/retry")
    long_lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in listed_files(*FOLDERS, ".ci", suffixes=suffixes)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > 100
    ]
    assert long_lines == []


def test_banned_words_are_recognized():
    assert banned_words(True, "may_look") == []  # `look` alone may be an adjective's noun
    assert banned_words(True, "errandRows") == ["errandRows"]
    assert banned_words(False, "# Whoever asks is told.") == ["whoever", "asks", "told"]
    assert banned_words(True, "attn_mask") == [] == banned_words(False, "Return the mask.")
