"""Soak-test the hosted app for hours with many users and faults.

Run `python -m benchmarks.load_soak --minutes 120`. The runs of four owners occupy all four slots.
Sixteen sessions poll at 4 Hz. Users start runs that queue, pause, inspect, predict, upload,
download, publish, and leave. Each phase of up to a minute injects one fault of `FAULTS`. At the
end all users leave, and the benchmark verifies every run on disk.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import click
import psutil

from benchmarks._results import save_results
from benchmarks.load_faults import FAULTS, HANG_TIMEOUT_S, child_processes, small_disk
from benchmarks.load_users import (
    ACTIVE_STATUSES,
    BackgroundUser,
    Phase,
    RunOwner,
    Scenario,
    Session,
    UserThread,
    stop_run,
)
from playground.checkpoints.checkpoint import resume_trainer
from playground.checkpoints.manifest import CheckpointError
from playground.checkpoints.metrics import read_metrics
from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import ROOT, AppServer, wait_for
from tests.support.fake_hub import FakeHub
from tests.support.page_client import run_folders, zipped_small_checkpoint
from tests.support.small_runs import tiny_config

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
RECOVERY_TIMEOUT_S = 120.0  # until every run trains or is queued again
RELEASE_WAIT_S = 75.0  # longer than the server takes to release a run without viewers
ENVIRONMENT = {
    "GRADIO_SERVER_NAME": "0.0.0.0",
    "PLAYGROUND_ADDRESS_MS": "0",
    "PLAYGROUND_SLOTS": str(SLOTS),
    "PLAYGROUND_IDLE_TIMEOUT_S": "30",
    "PLAYGROUND_RELEASE_AFTER_S": "10",
    "PLAYGROUND_HANG_TIMEOUT_S": str(HANG_TIMEOUT_S),
}


def server_memory_mb(scenario: Scenario) -> float:
    """Return the memory of the server process in megabytes."""
    return round(psutil.Process(scenario.app.process.pid).memory_info().rss / 1e6, 1)


def have_runs_resumed(owners: list[RunOwner], since: float) -> bool:
    """Return whether the run of every owner trains, or is queued, after the time `since`."""
    return all(
        owner.last_response_at > since + 1 and owner.status in ACTIVE_STATUSES for owner in owners
    )


def wait_until_idle(scenario: Scenario) -> None:
    wait_for(lambda: not child_processes(scenario).workers, 600, "the end of every worker")
    time.sleep(RELEASE_WAIT_S)


def measure(minutes: float = 10.0, seed: int = 0) -> dict[str, Any]:
    cpu_percent_before = psutil.cpu_percent(5)
    with tempfile.TemporaryDirectory() as scratch, FakeHub() as hub:
        folder = Path(scratch) / "app"
        folder.mkdir()
        environment = ENVIRONMENT | hub.environment(Path(scratch) / "hub")
        with small_disk(folder) as has_small_disk:
            scenario = Scenario(lambda port: AppServer(folder, port, ROOT, (), None, **environment))
            try:
                rng = random.Random(seed)
                rows = soak(scenario, folder, 60 * minutes, hub.ADA, rng, has_small_disk)
            finally:
                scenario.stopped.set()
                if scenario.app.process.poll() is None:
                    scenario.exit_codes.append(scenario.app.stop())
            rows["exit_codes"] = {
                str(code): scenario.exit_codes.count(code) for code in set(scenario.exit_codes)
            }
            log = scenario.app.log.read_text(errors="replace")
            rows["tracebacks"] = scenario.tracebacks + log.count("Traceback")
            rows |= count_stored_data(run_folders(scenario.app))
    return {"minutes": minutes, "busy_before": cpu_percent_before, "disk": has_small_disk} | rows


def soak(
    scenario: Scenario,
    root: Path,
    seconds: float,
    token: str,
    rng: random.Random,
    has_small_disk: bool,
) -> dict[str, Any]:
    """Start all users, run the phases for `seconds`, and return the measurements."""
    checkpoint_zip = zipped_small_checkpoint(root, tiny_config(**MODEL))
    # The first prediction starts the inspector, so the idle memory includes it.
    scenario.page(new_owner_key()).call("runs/predict", subject="checkpoint:reverse", text="3 1 4")
    idle_memory = server_memory_mb(scenario)
    keys = [new_owner_key() for _ in range(SLOTS)]
    subjects = []
    for key in keys:
        page = scenario.page(key)
        subjects.append(page.run_action(page.upload(checkpoint_zip), "rerun")["subject"])
    owners = [RunOwner(scenario, *pair) for pair in zip(keys, subjects, strict=True)]
    links = [
        "watch:" + scenario.page(key).call("runs/details", subject=subject)["share_id"]
        for key, subject in zip(keys, subjects, strict=True)
    ]
    sessions = [
        Session(
            scenario,
            keys[n % SLOTS] if n < SLOTS else new_owner_key(),
            (subjects if n < SLOTS else links)[n % SLOTS],
        )
        for n in range(N_SESSIONS)
    ]
    users: list[UserThread | BackgroundUser] = [
        UserThread(scenario, number, checkpoint_zip, token) for number in range(N_USERS)
    ]
    users.append(BackgroundUser(scenario))
    for thread in (*owners, *sessions, *users):
        thread.start()
    wait_for(
        lambda: all(owner.status == "training" for owner in owners), 300, "four runs that train"
    )
    faults = [name for name in FAULTS if has_small_disk or name != "the disk is full for a while"]
    phases: list[Phase] = []
    phase_seconds = max(30.0, min(60.0, seconds / len(faults)))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not len(phases) % len(faults):
            rng.shuffle(faults)
        fault = faults[len(phases) % len(faults)]
        phases.append(run_phase(scenario, fault, owners, root, phase_seconds))
        print(json.dumps(phase_result(phases[-1])), flush=True)
    scenario.stopped.set()
    for thread in (*sessions, *users):
        thread.join(150)
    for owner in owners:
        owner.stopping.set()
        owner.join(60)
        stop_run(owner.page, owner.subject)
    wait_until_idle(scenario)
    leftover = child_processes(scenario)
    responses = [session.n_responses for session in sessions]
    fairness = sum(responses) ** 2 / (len(responses) * sum(n * n for n in responses))  # Jain
    return {
        "phases": [phase_result(phase) for phase in phases],
        "answers": sum(responses),
        "fairness": round(fairness, 4),
        "in_all": quantiles([s for phase in phases for s in phase.poll_seconds]),
        "inspections_in_all": quantiles([s for phase in phases for s in phase.inspection_seconds]),
        "steps": [owner.step for owner in owners],
        "begun_before_a_checkpoint": sum(owner.lost_checkpoints for owner in owners),
        "shown_twice": sum(session.duplicate_steps for session in sessions),
        "done": dict(scenario.finished_actions),
        "refused": dict(scenario.rejections),
        "errors": [error for phase in phases for error in phase.errors][:40],
        "memory": {
            "idle": idle_memory,
            "most": max(mb for phase in phases for mb in phase.memory),
            "in_the_end": server_memory_mb(scenario),
        },
        "workers_left": len(leftover.workers),
        "others_left": len(leftover.others),
    }


def run_phase(
    scenario: Scenario, fault: str, owners: list[RunOwner], root: Path, seconds: float
) -> Phase:
    """Inject the fault after a sixth of the phase, and wait until every run has resumed."""
    phase = scenario.phase = Phase(fault, [server_memory_mb(scenario)])
    phase_end, inject = time.monotonic() + seconds, FAULTS[fault]
    time.sleep(seconds / 6)
    if inject is not None:
        inject(scenario, root)
    since = time.monotonic()
    with suppress(TimeoutError):
        wait_for(lambda: have_runs_resumed(owners, since), RECOVERY_TIMEOUT_S)
        phase.recovery_seconds = time.monotonic() - since
    time.sleep(max(0.0, phase_end - time.monotonic()))
    phase.memory.append(server_memory_mb(scenario))
    return phase


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return the number of times, and in milliseconds the median, 95th percentile and maximum."""
    ordered_ms = sorted(1000 * each for each in seconds) or [0.0]
    quantiles_ms = {
        "p50": ordered_ms[len(ordered_ms) // 2],
        "p95": ordered_ms[int(0.95 * len(ordered_ms))],
        "most": ordered_ms[-1],
    }
    return {"n": len(seconds)} | {name: round(value, 1) for name, value in quantiles_ms.items()}


def phase_result(phase: Phase) -> dict[str, Any]:
    return {
        "kind": phase.kind,
        "polls": quantiles(phase.poll_seconds),
        "inspections": quantiles(phase.inspection_seconds),
        "errors": len(phase.errors),
        "away": phase.failed_connections,
        "recovered": None if phase.recovery_seconds is None else round(phase.recovery_seconds, 1),
        "memory": phase.memory,
    }


def count_stored_data(folders: list[Path]) -> dict[str, Any]:
    """Count the metrics and checkpoints of all runs on disk, and those that are damaged.

    A run should have one line of metrics for each step, and every checkpoint should load.
    """
    missing = duplicates = unreadable = checkpoints = points = 0
    for folder in folders:
        steps = [line["step"] for line in read_metrics(folder)]
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
    """Format the phases, grouped by fault, and the totals as Markdown."""
    lines = [
        "| fault | phases | survived | recovery s: median, max | polls | p50 ms | p95 ms | max ms "
        "| errors | Inspect and Try it: n, p50, p95 ms | max server memory, MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        fault_phases = [phase for phase in rows["phases"] if phase["kind"] == fault]
        if not fault_phases:
            continue
        times = [p["recovered"] for p in fault_phases if p["recovered"] is not None]
        recovery = f"{median(times):.0f}, {max(times):.0f}" if times else "–"
        polls = [phase["polls"] for phase in fault_phases]
        inspections = [phase["inspections"] for phase in fault_phases]
        lines.append(
            f"| {fault} | {len(fault_phases)} | {len(times)} | "
            f"{recovery} | "
            f"{sum(p['n'] for p in polls):,} | {median(p['p50'] for p in polls):.0f} | "
            f"{max(p['p95'] for p in polls):.0f} | {max(p['most'] for p in polls):.0f} | "
            f"{sum(p['errors'] for p in fault_phases)} | {sum(p['n'] for p in inspections)}, "
            f"{median(p['p50'] for p in inspections):.0f}, "
            f"{max(p['p95'] for p in inspections):.0f} | "
            f"{max(max(p['memory']) for p in fault_phases):.0f} |"
        )
    polls, inspections, phases = rows["in_all"], rows["inspections_in_all"], rows["phases"]
    survived = sum(phase["recovered"] is not None for phase in phases)
    errors, unreachable = (sum(phase[name] for phase in phases) for name in ("errors", "away"))
    memory = rows["memory"]
    lines += [
        f"| total | {len(phases)} | {survived} | | {polls['n']:,} | {polls['p50']:.0f} | "
        f"{polls['p95']:.0f} | {polls['most']:.0f} | {errors} | {inspections['n']}, "
        f"{inspections['p50']:.0f}, {inspections['p95']:.0f} | {memory['most']:.0f} |",
        "",
        f"Duration: {rows['minutes']:g} minutes. CPU load of other processes before the start: "
        f"{rows['busy_before']:.0f} %. Jain's fairness index of the {N_SESSIONS} sessions: "
        f"{rows['fairness']:.3f}. Failed connections during restarts: {unreachable}. "
        f"Successful actions of users: {format_counts(rows['done'])}. Rejected with a message: "
        f"{format_counts(rows['refused'])}. Errors: {format_counts(Counter(rows['errors']))}. "
        f"Points on disk: {rows['points']:,} of {rows['runs']} runs, {rows['points_missing']} "
        f"missing, {rows['points_twice']} duplicated; {rows['shown_twice']} sent twice to a page. "
        f"Checkpoints: {rows['checkpoints']}, unreadable: {rows['checkpoints_unreadable']}. "
        f"Runs at a step before their newest checkpoint: {rows['begun_before_a_checkpoint']}. "
        f"Memory of the server: {memory['idle']:.0f} MB idle, {memory['in_the_end']:.0f} MB "
        f"{RELEASE_WAIT_S:.0f} s after the last user left. Remaining workers: "
        f"{rows['workers_left']}. Tracebacks in the log: {rows['tracebacks']}. "
        f"Exit codes of servers after SIGTERM: {format_counts(rows['exit_codes'])}."
        + ("" if rows["disk"] else " No disk could be mounted, so that fault is missing."),
    ]
    return "\n".join(lines)


def format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items())) or "none"


@click.command()
@click.option(
    "--minutes",
    type=click.FloatRange(0.5),
    default=120.0,
    show_default=True,
    help="Duration of all phases, without start and end.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order of faults.")
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
