"""Soak the hosted app for hours with many users and faults.

Run `python -m benchmarks.load_soak --minutes 120`. Four owners keep a run training, so that all
four slots are taken. Sixteen sessions poll at 4 Hz. Users start runs that queue, pause, inspect,
predict, upload, download, publish, and leave. Each minute has another fault: none; a worker is
killed, or hangs; the inspector or the fork server is killed; the disk is full; the server gets
SIGTERM, or is killed, and starts again. At the end every user leaves, and every run is read from
disk.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import click
import psutil

from benchmarks._results import save_results
from benchmarks.load_users import (
    ACTIVE_STATUSES,
    BackgroundUser,
    Phase,
    RunOwner,
    Scenario,
    Session,
    UserThread,
    leave_page,
)
from playground.checkpoints.checkpoint import resume_trainer
from playground.checkpoints.manifest import CheckpointError
from playground.runs.owner_keys import new_owner_key
from playground.runs.weight_history import read_lines
from tests.support.app_server import ROOT, AppServer, wait_for
from tests.support.fake_hub import FakeHub
from tests.support.page_client import run_folders, zipped_small_checkpoint
from tests.support.small_runs import run_as_root, tiny_config

SLOTS, N_SESSIONS, N_USERS = 4, 16, 3
MODEL = {
    "d_model": 64,
    "n_heads": 4,
    "n_layers": 2,
    "d_ff": 128,
    "batch_size": 128,
    "max_length": 10,
    "eval_size": 256,
}
DISK = 1_000_000_000  # bytes of the small disk
DISK_FULL_SECONDS = 8.0  # seconds
HANG_TIMEOUT_S = 10
RECOVERY_TIMEOUT_S = 120.0  # seconds until every run goes on, or waits in line again
COUNTED_COLUMNS = ("survived", "errors", "away")
FORGET_SECONDS = 75.0  # seconds after which a server has released a run without viewers
ENVIRONMENT = {
    "GRADIO_SERVER_NAME": "0.0.0.0",
    "PLAYGROUND_ADDRESS_MS": "0",
    "PLAYGROUND_SLOTS": str(SLOTS),
    "PLAYGROUND_IDLE_TIMEOUT_S": "30",
    "PLAYGROUND_RELEASE_AFTER_S": "10",
    "PLAYGROUND_HANG_TIMEOUT_S": str(HANG_TIMEOUT_S),
    "PLAYGROUND_THREADS": "1",
}


# What is done to it. Each takes the stage and its disk, and returns when it is done.


def children(
    stage: Scenario,
) -> tuple[list[psutil.Process], list[psutil.Process], list[psutil.Process]]:
    """Return the fork servers, the workers, and the other forked processes.

    The others are inspectors and Hub jobs. The search uses their environment, because the children
    of a killed server have another parent.
    """
    forking, workers, others = (
        list[psutil.Process](),
        list[psutil.Process](),
        list[psutil.Process](),
    )
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if (
                process.environ().get("PLAYGROUND_CHECKPOINTS") != str(stage.app.checkpoints)
                or process.pid == stage.app.process.pid
            ):
                continue
            if "forkserver" not in " ".join(process.cmdline()):
                continue  # the resource tracker
            if process.ppid() == stage.app.process.pid:
                forking.append(process)
            else:
                (
                    workers
                    if any(file.path.endswith("/.lock") for file in process.open_files())
                    else others
                ).append(process)
    return forking, workers, others


def kill_worker(stage: Scenario, root: Path) -> None:
    for worker in children(stage)[1][:1]:
        worker.kill()


def hang_worker(stage: Scenario, root: Path) -> None:
    for worker in children(stage)[1][-1:]:
        worker.suspend()
        with suppress(psutil.TimeoutExpired):
            worker.wait(HANG_TIMEOUT_S * 4)


def kill_inspector(stage: Scenario, root: Path) -> None:
    for looker in children(stage)[2]:
        with suppress(psutil.NoSuchProcess):
            looker.kill()


def kill_fork_server(stage: Scenario, root: Path) -> None:
    for server in children(stage)[0]:
        server.kill()


def fill_disk(stage: Scenario, root: Path) -> None:
    filler = root / "filler"
    with open(filler, "wb") as file:
        status = os.statvfs(root)
        with suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(4096, status.f_bavail * status.f_frsize))
    time.sleep(DISK_FULL_SECONDS)
    filler.unlink()


def terminate_server(stage: Scenario, root: Path) -> None:
    stage.is_server_down = True
    stage.exit_codes.append(stage.app.stop())
    stage.restart()
    stage.is_server_down = False


def kill_server(stage: Scenario, root: Path) -> None:
    stage.is_server_down = True
    stage.app.process.send_signal(signal.SIGKILL)
    stage.app.process.wait(20)
    stage.restart()
    stage.is_server_down = False


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
    """Mount a small disk that the test can fill, if mounting is possible."""
    mount_point = run_as_root(
        "mount", "-t", "tmpfs", "-o", f"size={DISK},mode=1777", "tmpfs", str(folder)
    )
    try:
        yield mount_point
    finally:
        if mount_point:
            run_as_root("umount", "-l", str(folder))


def megabytes(stage: Scenario) -> float:
    """Return the memory of the server process in megabytes."""
    return round(psutil.Process(stage.app.process.pid).memory_info().rss / 1e6, 1)


def resume_runs(keepers: list[RunOwner], since: float) -> bool:
    """Return whether every owner's run has trained or was queued since then."""
    return all(
        keeper.last_step_at > since + 1 and keeper.status in ACTIVE_STATUSES for keeper in keepers
    )


def wait_until_idle(stage: Scenario) -> None:
    wait_for(lambda: not children(stage)[1], 600, "the end of every worker")
    time.sleep(FORGET_SECONDS)


def measure(minutes: float = 10.0, seed: int = 0) -> dict[str, Any]:
    busy = psutil.cpu_percent(5)
    with tempfile.TemporaryDirectory() as scratch, FakeHub() as hub:
        folder = Path(scratch) / "app"
        folder.mkdir()
        environment = ENVIRONMENT | hub.environment(Path(scratch) / "hub")
        with small_disk(folder) as mounted:
            stage = Scenario(lambda port: AppServer(folder, port, ROOT, (), None, **environment))
            try:
                rows = soak(stage, folder, 60 * minutes, hub.ADA, random.Random(seed), mounted)
            finally:
                stage.stopped.set()
                if stage.app.process.poll() is None:
                    stage.exit_codes.append(stage.app.stop())
            rows["exit_codes"] = {
                str(code): stage.exit_codes.count(code) for code in set(stage.exit_codes)
            }
            rows["tracebacks"] = stage.tracebacks + stage.app.log.read_text(errors="replace").count(
                "Traceback"
            )
            rows |= check(run_folders(stage.app))
    return {"minutes": minutes, "busy_before": busy, "disk": mounted} | rows


def soak(
    stage: Scenario, root: Path, seconds: float, token: str, chance: random.Random, mounted: bool
) -> dict[str, Any]:
    """Run all phases, with users in each, and check the runs at the end."""
    packed = zipped_small_checkpoint(root, tiny_config(**MODEL))
    # the inspector runs from now on
    stage.page(new_owner_key()).call("runs/predict", subject="checkpoint:reverse", text="3 1 4")
    idle = megabytes(stage)
    owners = [new_owner_key() for _ in range(SLOTS)]
    subjects = []
    for owner in owners:
        page = stage.page(owner)
        subjects.append(page.run_action(page.upload(packed), "again")["subject"])
    keepers = [
        RunOwner(stage, owner, subject) for owner, subject in zip(owners, subjects, strict=True)
    ]
    links = [
        "watch:" + stage.page(o).call("runs/details", subject=s)["share_id"]
        for o, s in zip(owners, subjects, strict=True)
    ]
    sessions = [
        Session(
            stage,
            owners[n % SLOTS] if n < SLOTS else new_owner_key(),
            (subjects if n < SLOTS else links)[n % SLOTS],
        )
        for n in range(N_SESSIONS)
    ]
    visitors: list[UserThread | BackgroundUser] = [
        UserThread(stage, number, packed, token) for number in range(N_USERS)
    ]
    visitors.append(BackgroundUser(stage))
    for thread in (*keepers, *sessions, *visitors):
        thread.start()
    wait_for(
        lambda: all(keeper.status == "training" for keeper in keepers), 300, "four runs that train"
    )
    kinds = [kind for kind in FAULTS if mounted or kind != "the disk is full for a while"]
    phases: list[Phase] = []
    each = max(30.0, min(60.0, seconds / len(kinds)))
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if not len(phases) % len(kinds):
            chance.shuffle(kinds)
        phases.append(phase(stage, kinds[len(phases) % len(kinds)], keepers, root, each))
        print(json.dumps(phase_result(phases[-1])), flush=True)
    stage.stopped.set()
    for thread in (*sessions, *visitors):
        thread.join(150)
    for keeper in keepers:
        keeper.stopping.set()
        keeper.join(60)
        leave_page(keeper.page, keeper.subject)
    wait_until_idle(stage)
    _, workers, others = children(stage)
    answers = [session.answers for session in sessions]
    return {
        "phases": [phase_result(phase) for phase in phases],
        "answers": sum(answers),
        "fairness": round(sum(answers) ** 2 / (len(answers) * sum(n * n for n in answers)), 4),
        "in_all": quantiles([s for phase in phases for s in phase.seconds]),
        "inspections_in_all": quantiles([s for phase in phases for s in phase.inspection_seconds]),
        "steps": [keeper.step for keeper in keepers],
        "begun_before_a_checkpoint": sum(keeper.lost_checkpoints for keeper in keepers),
        "shown_twice": sum(session.duplicate_steps for session in sessions),
        "done": dict(stage.finished_actions),
        "refused": dict(stage.rejections),
        "errors": [error for phase in phases for error in phase.errors][:40],
        "memory": {
            "idle": idle,
            "most": max(m for phase in phases for m in phase.memory),
            "in_the_end": megabytes(stage),
        },
        "workers_left": len(workers),
        "others_left": len(others),
    }


def phase(stage: Scenario, kind: str, keepers: list[RunOwner], root: Path, seconds: float) -> Phase:
    """Run one phase: apply its fault halfway, and wait until every run continues."""
    now = stage.phase = Phase(kind, [megabytes(stage)])
    ends, harm = time.monotonic() + seconds, FAULTS[kind]
    time.sleep(seconds / 6)
    if harm is not None:
        harm(stage, root)
    since = time.monotonic()
    with suppress(TimeoutError):
        wait_for(lambda: resume_runs(keepers, since), RECOVERY_TIMEOUT_S)
        now.recovery_seconds = time.monotonic() - since
    time.sleep(max(0.0, ends - time.monotonic()))
    now.memory.append(megabytes(stage))
    return now


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return n, median, 95th percentile and maximum, in milliseconds."""
    ordered = sorted(1000 * each for each in seconds) or [0.0]
    named = {
        "p50": ordered[len(ordered) // 2],
        "p95": ordered[int(0.95 * len(ordered))],
        "most": ordered[-1],
    }
    return {"n": len(seconds)} | {name: round(value, 1) for name, value in named.items()}


def phase_result(phase: Phase) -> dict[str, Any]:
    return {
        "kind": phase.kind,
        "polls": quantiles(phase.seconds),
        "inspections": quantiles(phase.inspection_seconds),
        "errors": len(phase.errors),
        "away": phase.failed_connections,
        "recovered": None if phase.recovery_seconds is None else round(phase.recovery_seconds, 1),
        "memory": phase.memory,
    }


def check(folders: list[Path]) -> dict[str, Any]:
    """Count the points and checkpoints of every run on disk.

    Each run needs one line of metrics for every step, and checkpoints that load.
    """
    missing = duplicates = unreadable = checkpoints = points = 0
    for folder in folders:
        steps = [line["step"] for line in read_lines(folder)]
        points += len(steps)
        duplicates += len(steps) - len(set(steps))
        missing += max(steps, default=0) - len(set(steps))
        for path in (folder / "checkpoints").glob("[0-9]*"):
            checkpoints += 1
            try:
                resume_trainer(path)
            except CheckpointError:
                unreadable += 1
    return {
        "runs": len(folders),
        "points": points,
        "points_missing": missing,
        "points_twice": duplicates,
        "checkpoints": checkpoints,
        "checkpoints_unreadable": unreadable,
    }


def table(rows: dict[str, Any]) -> str:
    """Format the phases, grouped by fault, and the sums as Markdown."""
    lines = [
        "| what happened, in a minute each | times | survived | seconds until all runs went on, "
        "median and most | polls | p50 ms | p95 ms "
        "| most ms | errors | Inspect and Try it: n, p50, p95 ms | server's memory, most MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in FAULTS:
        phases_of_kind = [phase for phase in rows["phases"] if phase["kind"] == kind]
        if not phases_of_kind:
            continue
        took = [phase["recovered"] for phase in phases_of_kind if phase["recovered"] is not None]
        polls, inspections = (
            [phase["polls"] for phase in phases_of_kind],
            [phase["inspections"] for phase in phases_of_kind],
        )
        lines.append(
            f"| {kind} | {len(phases_of_kind)} | {len(took)} | "
            f"{f'{median(took):.0f}, {max(took):.0f}' if took else '–'} | "
            f"{sum(p['n'] for p in polls):,} | {median(p['p50'] for p in polls):.0f} | "
            f"{max(p['p95'] for p in polls):.0f} | {max(p['most'] for p in polls):.0f} | "
            f"{sum(p['errors'] for p in phases_of_kind)} | {sum(p['n'] for p in inspections)}, "
            f"{median(p['p50'] for p in inspections):.0f}, "
            f"{max(p['p95'] for p in inspections):.0f} | "
            f"{max(max(p['memory']) for p in phases_of_kind):.0f} |"
        )
    polls, inspections, memory, phases = (
        rows["in_all"],
        rows["inspections_in_all"],
        rows["memory"],
        rows["phases"],
    )
    survived, errors, away = (
        sum(p[name] for p in [p | {"survived": p["recovered"] is not None} for p in phases])
        for name in COUNTED_COLUMNS
    )
    lines += [
        f"| in all | {len(phases)} | {survived} | | {polls['n']:,} | {polls['p50']:.0f} | "
        f"{polls['p95']:.0f} | {polls['most']:.0f} | {errors} | {inspections['n']}, "
        f"{inspections['p50']:.0f}, {inspections['p95']:.0f} | {memory['most']:.0f} |",
        "",
        f"{rows['minutes']:g} minutes; before it began, {rows['busy_before']:.0f} % of the cores "
        f"were busy with other things. Fairness of the {N_SESSIONS} sessions (Jain) "
        f"{rows['fairness']:.3f}; {away} requests met no server while it was started again. "
        f"Visitors did: {listed(rows['done'])}; were rejected with a message: "
        f"{listed(rows['refused'])}. Errors: {listed(Counter(rows['errors']))}. {rows['runs']} "
        f"runs with {rows['points']:,} points read from disk afterwards: {rows['points_missing']} "
        f"missing, {rows['points_twice']} twice, {rows['shown_twice']} shown twice to a page; "
        f"{rows['checkpoints']} checkpoints, {rows['checkpoints_unreadable']} unreadable, and "
        f"{rows['begun_before_a_checkpoint']} times a run was seen before its newest one. The "
        f"server's memory: {memory['idle']:.0f} MB idle, {memory['in_the_end']:.0f} MB "
        f"{FORGET_SECONDS:.0f} s after all visitors had left; workers left: "
        f"{rows['workers_left']}; "
        f"tracebacks in its log: {rows['tracebacks']}; exit codes of servers after "
        f"SIGTERM: {listed(rows['exit_codes'])}."
        + ("" if rows["disk"] else " No disk could be mounted here, so none was filled."),
    ]
    return "\n".join(lines)


def listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items())) or "nothing"


@click.command()
@click.option(
    "--minutes",
    type=click.FloatRange(0.5),
    default=120.0,
    show_default=True,
    help="How long, without coming and leaving.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the order of what happens."
)
@click.option(
    "--keep",
    "should_save",
    is_flag=True,
    help="Write results/soak.json, which `python -m benchmarks` puts into RESULTS.md.",
)
def main(minutes: float, seed: int, should_save: bool) -> None:
    """Soak the app, and print the results."""
    rows = measure(minutes, seed)
    print(table(rows))
    if should_save:
        save_results("soak", rows)


if __name__ == "__main__":
    main()
