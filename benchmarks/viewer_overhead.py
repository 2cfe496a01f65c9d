"""Measure the overhead of viewers.

Training is pinned to one core, the server and the viewers to another. Interleaved rounds measure
the steps per second of four conditions:

- the Trainer alone, as on the command line;
- the Trainer while an unrelated loop occupies the other core (cores share caches and memory);
- a run of the app without viewers;
- the same run with 16 viewers, each of which polls at 4 Hz over HTTP as a page does.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import random
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil

VIEWERS, POLLS_PER_SECOND = 16, 4.0
ROUNDS, SECONDS = 12, 6.0
RUN_SETTINGS = {
    "max_steps": 1_000_000,
    "batch_size": 32,
    "min_length": 10,
    "max_length": 10,
    "eval_every": 1_000_000,
    "lr_schedule": "constant",
    "learning_rate": 1e-3,
}


def train_alone(pipe: Any, core: int) -> None:
    """Receive durations in seconds; train for each, and send the steps per second."""
    psutil.Process().cpu_affinity([core])
    from playground.training.run_config import RunConfig
    from playground.training.trainer import Trainer

    trainer = Trainer(RunConfig.from_flat(RUN_SETTINGS))
    for _ in range(50):
        trainer.train_step()
    while (seconds := pipe.recv()) is not None:
        before, started = trainer.step_count, time.perf_counter()
        while time.perf_counter() - started < seconds:
            trainer.train_step()
        pipe.send((trainer.step_count - before) / (time.perf_counter() - started))


def occupy_core(core: int) -> None:
    """Keep a core busy with JSON, as a server does."""
    psutil.Process().cpu_affinity([core])
    numbers = list(range(10_000))
    while True:
        json.loads(json.dumps(numbers))


def poll_as_viewer(
    port: int,
    requests: list[dict[str, Any]],
    core: int,
    can_poll: Any,
    stop: Any,
    response_times: Any,
) -> None:
    """Poll like pages while `can_poll` is set, and record the response times."""
    psutil.Process().cpu_affinity([core])
    times: list[float] = []

    def poll(request: dict[str, Any]) -> None:
        n_points, series_id, snapshot_version = 0, -1, 0
        # A browser keeps the connection open, too.
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        while not stop.is_set():
            if not can_poll.is_set():
                connection.close()  # the next request opens it again
                time.sleep(0.05 + random.random() / POLLS_PER_SECOND)  # pages are not in step
                continue
            started = time.perf_counter()
            body = request | {
                "n_points": n_points,
                "series_id": series_id,
                "snapshot_version": snapshot_version,
            }
            connection.request("POST", "/playground/api/runs/poll", json.dumps(body))
            content = connection.getresponse().read()
            times.append(time.perf_counter() - started)
            response = json.loads(content)
            n_points, series_id, snapshot_version = (
                response["points"]["count"],
                response["series_id"],
                response["snapshot_version"],
            )
            time.sleep(max(0.0, 1 / POLLS_PER_SECOND - (time.perf_counter() - started)))

    threads = [threading.Thread(target=poll, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    response_times.extend(times)  # at the end: its process shares the core with the server


def steps_per_second(run: Any, seconds: float) -> float:
    """Measure the steps per second of a live run, from one worker message to another."""

    def wait_for_message() -> tuple[int, float]:
        last_step = run.step
        while run.step == last_step:
            time.sleep(0.0005)
        return run.step, time.perf_counter()

    first, started = wait_for_message()
    time.sleep(seconds)
    last, ended = wait_for_message()
    return (last - first) / (ended - started)


def measure() -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    training_core, serving_core = cores[0], cores[-1]
    os.environ["PLAYGROUND_IDLE_TIMEOUT_S"] = "0"
    from playground.experiments.service import ExperimentService
    from playground.jobs.process import warm_up
    from playground.runs.owner_keys import new_owner_key
    from playground.runs.registry import Registry
    from playground.server.api import Endpoints
    from playground.server.app import build_app, build_handlers, launch_options
    from playground.server.rate_limit import LoadLimits
    from playground.training.run_config import RunConfig

    warm_up().join()
    context = multiprocessing.get_context("spawn")
    parent_pipe, child_pipe = context.Pipe()
    baseline = context.Process(target=train_alone, args=(child_pipe, training_core), daemon=True)
    baseline.start()
    psutil.Process().cpu_affinity([serving_core])
    with tempfile.TemporaryDirectory() as root, context.Manager() as shared:
        registry = Registry(Path(root))
        handlers = build_handlers(registry, ExperimentService(registry), public=False)
        load, owner = LoadLimits(0, 0), new_owner_key()
        app = build_app(Endpoints(registry, handlers, load))
        app.launch(
            prevent_thread_lock=True,
            quiet=True,
            **launch_options(registry, handlers, None, None, load),
        )
        run = registry.start(RunConfig.from_flat(RUN_SETTINGS), owner)
        while run.step < 50:
            time.sleep(0.1)
        worker = psutil.Process(run.worker.process.pid)  # type: ignore[union-attr]
        worker.cpu_affinity([training_core])
        request = {"owner": owner, "subject": f"run:{run.id}"}
        can_poll, stop, response_times = context.Event(), context.Event(), shared.list()
        pollers = context.Process(
            target=poll_as_viewer,
            args=(
                app.server_port,
                [request] * VIEWERS,
                serving_core,
                can_poll,
                stop,
                response_times,
            ),
            daemon=True,
        )
        pollers.start()
        rounds = []
        for round_index in range(ROUNDS + 1):
            registry.control(run, "pause")
            while run.status != "paused":
                time.sleep(0.01)
            parent_pipe.send(SECONDS)
            alone = parent_pipe.recv()
            busy = context.Process(target=occupy_core, args=(serving_core,), daemon=True)
            busy.start()
            time.sleep(1)
            parent_pipe.send(SECONDS)
            beside_busy_core = parent_pipe.recv()
            busy.kill()
            busy.join()
            registry.control(run, "resume")
            can_poll.clear()
            time.sleep(6)  # until the run has no viewer
            unwatched = steps_per_second(run, SECONDS)
            can_poll.set()
            time.sleep(1)
            watched = steps_per_second(run, SECONDS)
            if round_index:  # the first round is a warm-up
                measured = {
                    "alone": alone,
                    "beside": beside_busy_core,
                    "unwatched": unwatched,
                    "watched": watched,
                }
                rounds.append({name: round(speed, 1) for name, speed in measured.items()})
                print(rounds[-1], flush=True)
        stop.set()
        can_poll.set()
        pollers.join(10)
        times = sorted(1000 * seconds for seconds in response_times)
        parent_pipe.send(None)
        registry.shutdown()
        app.close()
    psutil.Process().cpu_affinity(cores)
    timings = {"median": median(times), "p95": times[int(0.95 * len(times))], "most": times[-1]}
    return {
        "rounds": rounds,
        "polls": len(times),
        "poll_ms": {name: round(ms, 1) for name, ms in timings.items()},
    }


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    rounds, polls = rows["rounds"], rows["poll_ms"]

    def line(name: str, key: str, baseline: str) -> str:
        ratios = sorted(r[key] / r[baseline] for r in rounds)
        return (
            f"| {name} | {median(r[key] for r in rounds):.1f} | {median(ratios):.1%} | "
            f"{ratios[0]:.1%} to {ratios[-1]:.1%} |"
        )

    return "\n".join(
        [
            "| condition, compared with | steps per second: median | ratio: median | range |",
            "|---|---|---|---|",
            f"| the Trainer alone | {median(r['alone'] for r in rounds):.1f} | | |",
            line(
                "the Trainer beside a busy core, compared with the Trainer alone", "beside", "alone"
            ),
            line("a run without viewers, compared with the Trainer alone", "unwatched", "alone"),
            line(
                f"a run with {VIEWERS} viewers at {POLLS_PER_SECOND:g} Hz, compared with the "
                "Trainer alone",
                "watched",
                "alone",
            ),
            line("the same, compared with the Trainer beside a busy core", "watched", "beside"),
            "",
            f"{len(rounds)} rounds of {SECONDS:g} s each, interleaved. {rows['polls']:,} polls: "
            f"median {polls['median']} ms, "
            f"95th percentile {polls['p95']} ms, longest {polls['most']} ms.",
        ]
    )
