"""What differs between Linux, macOS and Windows. No other module knows the operating system."""

import math
import mmap
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType

import psutil

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")  # of Linux
SPACE_STORAGE_DIR = Path("/data")  # the persistent storage of a Space
IS_WINDOWS, IS_MAC = os.name == "nt", sys.platform == "darwin"
# The first is the default. On macOS, a fork after the import of torch can crash.
START_METHODS = [
    method
    for method in (("spawn", "forkserver") if IS_MAC else ("forkserver", "spawn"))
    if method in multiprocessing.get_all_start_methods()
]
KILLED_EXIT_CODES = (-9, 137)  # after SIGKILL
RENAME_TIMEOUT_S = 1.0


# Processes


def handle_stop_signals(
    handler: Callable[[int, FrameType | None], object], *, interrupt: bool = True
) -> None:
    """Let `handler` handle the signals that ask this process to end.

    `interrupt` includes that of Ctrl-C. The others come from another process, or from a terminal
    that closes.
    """
    for name in ["SIGTERM", "SIGHUP", "SIGBREAK"] + ["SIGINT"] * interrupt:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), handler)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Start processes inside this context with SIGINT blocked, also during their imports.

    The terminal sends Ctrl-C to the whole process group; the server process handles it for all.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Otherwise the first process starts the resource tracker, which unblocks SIGINT afterwards.
    resource_tracker.ensure_running()
    # Child processes inherit the mask of this thread.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def lower_priority(nice: int) -> None:
    """Lower the priority of this process: by `nice`, or on Windows to the next class."""
    if IS_WINDOWS:
        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        os.nice(nice)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, plus its waiting time for a CPU if Linux reports it.

    On a busy machine a worker may get almost no CPU time for a minute. It is not hung then. Raises
    psutil.Error if there is no such process.
    """
    nanoseconds = 0
    for path in (PROC / str(pid) / "task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended
            ran, waited, _ = path.read_text().split()
            nanoseconds += int(ran) + int(waited)
    if nanoseconds:
        return nanoseconds / 1e9
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def count_oom_kills() -> int:
    """Return how many processes of this control group Linux has killed for lack of memory, or 0."""
    with suppress(OSError, ValueError, IndexError):
        group = (PROC / "self" / "cgroup").read_text().rsplit("0::/", 1)[1].strip()
        for line in (CGROUP / group / "memory.events").read_text().splitlines():
            name, count = line.split()
            if name == "oom_kill":
                return int(count)
    return 0


# Cores, memory and descriptors


def usable_cores() -> int:
    """Return the CPU cores that this process may use, by affinity and container quota."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(cores, _cpu_quota() or cores)


def _cpu_quota() -> int:
    """Return the control group's CPU quota (version 2 or 1) in cores, rounded up; 0 if none."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = (
                (CGROUP / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        except (OSError, ValueError):
            return 0
    try:
        return max(0, math.ceil(int(quota) / int(period)))  # "max", or -1 in version 1: no limit
    except (ValueError, ZeroDivisionError):
        return 0


def free_memory() -> int:
    """Return the bytes that a new process may take, by the machine and by its container.

    The cache of files counts as free, because the kernel takes it back.
    """
    free: int = psutil.virtual_memory().available
    try:
        allowed = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return min(free, allowed - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):  # no control groups here, or no limit ("max")
        return free


def limit_memory_growth(n_bytes: int) -> None:
    """Limit the growth of this process, where the system supports it."""
    if resource is None:
        return
    with suppress(ValueError, OSError):  # a system that does not support the limit
        limit = psutil.Process().memory_info().vms + n_bytes
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def raise_descriptor_limit() -> int:
    """Raise the soft limit of file descriptors to the hard one, and return the limit."""
    if resource is None:
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = 65_536 if hard == resource.RLIM_INFINITY else hard
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, target), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


# Files, ports and screen


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder; a file replaces one that has the new name. Raises OSError.

    Windows does not rename what a program, such as a virus scanner, has open: there it is tried
    again for a second.
    """
    deadline = time.monotonic() + RENAME_TIMEOUT_S * IS_WINDOWS
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.02)


def read_into_map(path: Path) -> memoryview:
    """Read a large file into memory that, unlike the heap, goes back to the system after use.

    It is no map of the file, which Windows could not remove then.
    """
    content = mmap.mmap(-1, max(1, path.stat().st_size))
    with path.open("rb") as file:
        file.readinto(content)
    return memoryview(content)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it on a disk without links, such as FAT."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def reuse_port(listener: socket.socket) -> None:
    """Let a socket listen at a port of closed connections, as Windows does by itself.

    There, this option would share the port with another program.
    """
    if not IS_WINDOWS:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def fsync_dir(folder: Path) -> None:
    """Flush the entries of a directory to disk; Windows cannot, so nothing happens there."""
    if IS_WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def has_display() -> bool:
    """Return whether a browser that opens here would be visible."""
    if "SSH_CONNECTION" in os.environ or not sys.stdout.isatty():
        return False
    return (
        IS_WINDOWS or IS_MAC or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    )
