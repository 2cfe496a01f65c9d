"""One module knows the operating system; every other one is portable, and so is each file name."""

import ast
import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = ROOT / "playground" / "common" / "platform.py"
FILES = [
    path for path in [ROOT / "app.py", *(ROOT / "playground").rglob("*.py")] if path != PLATFORM
]
# and mmap: Windows neither replaces nor removes a file that is mapped
POSIX_MODULES = {
    *("fcntl", "grp", "mmap", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
}
# The names of each module that all systems have, or that exist on some only.
PORTABLE_SIGNALS = {"SIGINT", "SIGTERM", "SIG_IGN", "SIG_DFL", "signal"}
FORBIDDEN = {
    "os": {
        *("chmod", "chown", "fork", "forkpty", "getloadavg", "getpgid", "getuid"),
        *("geteuid", "kill", "killpg", "link", "mkfifo", "name", "nice", "posix_fallocate"),
        *("rename", "replace", "sched_getaffinity", "sched_setaffinity", "setsid", "statvfs"),
        *("symlink", "umask", "uname", "wait", "waitpid"),
    },
    "sys": {"platform", "getwindowsversion"},
    "platform": {"system", "uname", "win32_ver", "mac_ver"},
    "socket": {"AF_UNIX", "SO_REUSEADDR", "SO_REUSEPORT", "socketpair"},
    "multiprocessing": {"get_all_start_methods"},
}
POSIX_PATH = re.compile(r"/(bin|data|dev|etc|home|opt|proc|root|run|sys|tmp|usr|var)(/|$)")
RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in "123")}


def problems(source: str) -> list[str]:
    """Return what in this code only some operating systems have."""
    reasons = []
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [(each.name, "") for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [(node.module or "", each.name) for each in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [(node.value.id, node.attr)]
        for module, name in names:
            if (
                module in POSIX_MODULES
                or name in FORBIDDEN.get(module, ())
                or (module == "signal" and name and name not in PORTABLE_SIGNALS)
            ):
                reasons.append(f"{node.lineno}: {module}.{name}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if POSIX_PATH.match(node.value) and id(node) not in docstrings:
                reasons.append(f"{node.lineno}: {node.value!r}")
        elif isinstance(node, ast.Call):
            reasons += [f"{node.lineno}: {each}" for each in problems_of_call(node)]
    return reasons


def problems_of_call(node: ast.Call) -> list[str]:
    """Return why a call reads or writes a file in another way on another system."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    options = {each.arg for each in node.keywords}
    is_method = isinstance(node.func, ast.Attribute)
    if name == "open" and not is_method and ast.unparse(node.args[0]) != "os.devnull":
        mode = next((a.value for a in node.args[1:2] if isinstance(a, ast.Constant)), "r")
        return ["open without encoding"] * ("b" not in mode and "encoding" not in options)
    if name == "read_text" and is_method and not node.args and "encoding" not in options:
        return ["read_text without encoding"]
    if name == "write_text" and not {"encoding", "newline"} <= options:
        return ["write_text without encoding and newline"]
    # Path.replace has one argument, str.replace two
    is_rename = name == "rename" or (name == "replace" and len(node.args) == 1 and not options)
    return ["a rename that Windows may refuse"] * (is_method and is_rename)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_platform_knows_the_operating_system(path):
    assert problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code",
    [
        *("import fcntl", "from resource import getrlimit", "import os\nos.kill(1, 9)"),
        *("from os import setsid", "import signal\nsignal.SIGKILL"),
        *("import socket\nsocket.AF_UNIX", "import sys\nsys.platform == 'win32'", "x = '/tmp/x'"),
        *("open('a')", "open('a', 'w')", "path.read_text()"),
        *("path.write_text('a', encoding='utf-8')", "path.rename(other)", "path.replace(other)"),
    ],
)
def test_code_of_one_system_is_noticed(code):
    assert problems(code)


def test_every_file_has_a_name_that_windows_accepts():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")[:-1]
    assert len(listed) > 500
    assert len({name.lower() for name in listed}) == len(listed)
    for name in listed:
        assert len(name) <= 150, name  # of 260 for the whole path
        for part in PurePosixPath(name).parts:
            assert not re.search(r'[<>:"\\|?*\x00-\x1f]|[. ]$', part), name
            assert part.split(".")[0].lower() not in RESERVED, name
