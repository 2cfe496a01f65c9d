"""The faults of a soak test (load_soak.py).

Each fault is a function of the scenario and the folder of its disk, and blocks until it is over.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.load_users import Scenario
from tests.support.small_runs import run_as_root

SMALL_DISK_BYTES = 1_000_000_000
DISK_FULL_SECONDS = 8.0
HANG_TIMEOUT_S = 10


class ChildProcesses(NamedTuple):
    """The child processes of the server; `others` are inspectors and Hub jobs."""

    fork_servers: list[psutil.Process]
    workers: list[psutil.Process]
    others: list[psutil.Process]


def child_processes(scenario: Scenario) -> ChildProcesses:
    """Find the child processes by their environment.

    The parent process does not identify them: it changes when the server is killed.
    """
    children = ChildProcesses([], [], [])
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if (
                process.environ().get("PLAYGROUND_CHECKPOINTS") != str(scenario.app.checkpoints)
                or process.pid == scenario.app.process.pid
            ):
                continue
            if "forkserver" not in " ".join(process.cmdline()):
                continue  # the resource tracker of multiprocessing
            if process.ppid() == scenario.app.process.pid:
                children.fork_servers.append(process)
            elif any(file.path.endswith("/.lock") for file in process.open_files()):
                children.workers.append(process)
            else:
                children.others.append(process)
    return children


def kill_worker(scenario: Scenario, root: Path) -> None:
    for worker in child_processes(scenario).workers[:1]:
        worker.kill()


def hang_worker(scenario: Scenario, root: Path) -> None:
    for worker in child_processes(scenario).workers[-1:]:
        worker.suspend()
        with suppress(psutil.TimeoutExpired):
            worker.wait(HANG_TIMEOUT_S * 4)


def kill_inspector(scenario: Scenario, root: Path) -> None:
    for process in child_processes(scenario).others:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def kill_fork_server(scenario: Scenario, root: Path) -> None:
    for process in child_processes(scenario).fork_servers:
        process.kill()


def fill_disk(scenario: Scenario, root: Path) -> None:
    filler = root / "filler"
    with open(filler, "wb") as file:
        disk = os.statvfs(root)
        with suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(4096, disk.f_bavail * disk.f_frsize))
    time.sleep(DISK_FULL_SECONDS)
    filler.unlink()


def terminate_server(scenario: Scenario, root: Path) -> None:
    scenario.is_server_down = True
    scenario.exit_codes.append(scenario.app.stop())
    scenario.restart()
    scenario.is_server_down = False


def kill_server(scenario: Scenario, root: Path) -> None:
    scenario.is_server_down = True
    scenario.app.process.send_signal(signal.SIGKILL)
    scenario.app.process.wait(20)
    scenario.restart()
    scenario.is_server_down = False


FAULTS: dict[str, Callable[[Scenario, Path], None] | None] = {
    "nothing": None,
    "a worker is killed": kill_worker,
    "the server is terminated, and started again": terminate_server,
    "the disk is full for a while": fill_disk,
    "the inspector is killed": kill_inspector,
    "a worker hangs": hang_worker,
    "the server is killed, and started again": kill_server,
    "the fork server is killed": kill_fork_server,
}


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small disk on a folder; yield False if this user cannot mount one."""
    is_mounted = run_as_root(
        "mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES},mode=1777", "tmpfs", str(folder)
    )
    try:
        yield is_mounted
    finally:
        if is_mounted:
            run_as_root("umount", "-l", str(folder))
