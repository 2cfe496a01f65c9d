"""Make this Linux look like Windows to the package: `PYTHONPATH=tests/support/other_desktop`.

Python imports it at the start of every process, so also in workers and servers. It hides what only
POSIX systems have and leaves `spawn` as the only start method. Its files have names in which upper
and lower case are the same, and without the characters that Windows refuses. A file that is open or
mapped in this process, its parent or a child cannot be renamed or removed, nor can its folder.
"""

import builtins
import io
import multiprocessing.context
import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from functools import wraps
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
POSIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios"}
RESERVED = re.compile(
    r'.*([<>:"|?*\\\x00-\x1f]|[. ]$)|(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?$', re.I | re.S
)
real_import, real_open = builtins.__import__, builtins.open
real_lstat, real_listdir = os.lstat, os.listdir


def import_portable(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if name in POSIX_MODULES and importer.startswith("playground"):
        raise ImportError(f"no module {name} on this system")
    return real_import(name, globals, locals, fromlist, level)


def name_on_disk(path):
    """Return a path as the disk spells it; the names that do not exist stay as they are."""
    try:
        real_lstat(path)
        return path
    except (OSError, ValueError):
        head, tail = os.path.split(path)
    if not tail:
        return path
    head = head and name_on_disk(head)
    try:
        names = real_listdir(head or ".")
    except OSError:
        names = []
    match = next((name for name in names if name.lower() == tail.lower()), tail)
    return os.path.join(head, match)


def portable(function, n_paths=1, n_open=0, creates=lambda path, *rest, **options: False):
    """Let a function treat its first `n_paths` paths as Windows does.

    It finds files whatever the case of their names, refuses its first `n_open` paths while they
    are open, and creates only valid names.
    """

    @wraps(function)
    def checked(*arguments, **options):
        if options.keys() & {"dir_fd", "src_dir_fd"}:
            return function(*arguments, **options)
        paths = [
            name_on_disk(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else path
            for path in arguments[:n_paths]
        ]
        for path in paths[:n_open]:
            real = os.path.realpath(path)
            if any(each == real or each.startswith(real + "/") for each in open_paths()):
                raise PermissionError(13, "The file is in use by another process", path)
        target = paths[-1] if paths else None
        if isinstance(target, str) and creates(*arguments, **options):
            if not os.path.lexists(target):
                if RESERVED.match(os.path.basename(target)):
                    raise OSError(22, "Invalid argument", target)
            elif not n_open and os.path.realpath(target) in mapped_paths():
                raise OSError(22, "The file is mapped", target)
        return function(*paths, *arguments[n_paths:], **options)

    checked.__module__ = {"posix": "os"}.get(function.__module__, "io")  # for pickle
    return checked


def open_paths():
    """Return the files that this process has mapped, or that it, its parent or a child has open."""
    processes, paths = {"self", str(os.getppid())}, mapped_paths()
    for thread in real_listdir("/proc/self/task"):
        with suppress(OSError), real_open(f"/proc/self/task/{thread}/children") as file:
            processes.update(file.read().split())
    for folder in (f"/proc/{process}/fd" for process in processes):
        with suppress(OSError):  # it has ended
            for descriptor in real_listdir(folder):
                with suppress(OSError):  # it has been closed
                    paths.append(os.readlink(f"{folder}/{descriptor}"))
    return paths


def mapped_paths():
    """Return the files that this process has mapped."""
    with real_open("/proc/self/maps") as file:
        return [line[73:-1] for line in file if line[73:74] == "/"]


builtins.__import__ = import_portable
for name in ("getloadavg", "killpg", "nice", "sched_getaffinity"):
    delattr(os, name)
for name in ("SIGHUP", "pthread_sigmask", "SIG_BLOCK"):
    delattr(signal, name)
multiprocessing.context.DefaultContext.get_all_start_methods = lambda self: ["spawn"]
multiprocessing.get_all_start_methods = lambda: ["spawn"]
os.environ.setdefault("PLAYGROUND_START_METHOD", "spawn")

sys.path.insert(0, str(ROOT))
from playground.common import platform  # noqa: E402

sys.path.remove(str(ROOT))
platform.IS_WINDOWS = True
platform.PROC = platform.CGROUP = Path("none")
platform.lower_priority = lambda nice: None
shutil._use_fd_functions = False  # it removes folders by their names


def always(*arguments, **options):
    return True


def is_replaced(path, mode="r", *rest, **options):
    return set(mode) & set("wx")


def is_created(path, flags, *rest, **options):
    return flags & os.O_CREAT


for name in (
    *("access", "chmod", "listdir", "lstat", "readlink", "rmdir", "scandir", "stat", "utime"),
):
    setattr(os, name, portable(getattr(os, name)))
for name in ("rename", "replace"):
    setattr(os, name, portable(getattr(os, name), 2, 2, always))
for name in ("remove", "unlink"):
    setattr(os, name, portable(getattr(os, name), 1, 1))
os.link = portable(os.link, 2, 0, always)
os.mkdir = portable(os.mkdir, creates=always)
os.open = portable(os.open, creates=is_created)
io.open = builtins.open = portable(builtins.open, creates=is_replaced)
