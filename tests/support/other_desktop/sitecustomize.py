"""Make this Linux look like Windows to the package: `PYTHONPATH=tests/support/other_desktop`.

Python imports it at the start of every process, so also in workers and servers. It hides what only
POSIX systems have, leaves `spawn` as the only start method, and refuses to rename or remove a file
that a process of this program has open. A folder counts as open while a file in it is.
"""

import builtins
import multiprocessing.context
import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
POSIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios"}
real_import = builtins.__import__


def import_portable(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if name in POSIX_MODULES and importer.startswith("playground"):
        raise ImportError(f"no module {name} on this system")
    return real_import(name, globals, locals, fromlist, level)


def open_paths():
    """Yield the files that this process has open."""
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # it has been closed
            continue


def refuse_open_files(function, n_paths):
    """Let a function refuse its first `n_paths` paths while they, or files in them, are open."""

    def checked(*paths, **options):
        for path in paths[:n_paths]:
            if isinstance(path, (str, os.PathLike)) and "dir_fd" not in options:
                real = os.path.realpath(path)
                if any(each == real or each.startswith(real + "/") for each in open_paths()):
                    raise PermissionError(13, "The file is in use by another process", str(path))
        return function(*paths, **options)

    return checked


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
for name, count in (("rename", 2), ("replace", 2), ("unlink", 1), ("remove", 1)):
    setattr(os, name, refuse_open_files(getattr(os, name), count))
