"""Seconds from `python app.py` to an answering page, from a click on Train to the first point, and
what is imported on the way.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

from playground.runs.registry import Registry
from playground.runs.worker_process import warm_up
from playground.training.config import RunConfig

ROOT = Path(__file__).resolve().parent.parent
REPETITIONS = 5
SLOWEST_IMPORTS = 8  # packages that the import profile names


def page_seconds() -> float:
    """One start of the app, until the page has been answered."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"GRADIO_SERVER_PORT": str(port)}
    started = time.perf_counter()
    app = subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
                return time.perf_counter() - started
            except OSError:
                if app.poll() is not None:
                    raise RuntimeError(f"app.py ended with exit code {app.returncode}") from None
                time.sleep(0.02)
    finally:
        app.terminate()
        app.wait(10)


def first_point_seconds() -> list[float]:
    """Starts of a run in a warm server, until its first point has arrived."""
    warm_up().join()
    took = []
    with tempfile.TemporaryDirectory() as root:
        registry = Registry(Path(root), slots=REPETITIONS + 1)
        for n in range(REPETITIONS + 1):
            started = time.perf_counter()
            run = registry.start(RunConfig.from_flat({"steps": 30}), "benchmark")
            while not run.points:
                time.sleep(0.002)
            took.append(time.perf_counter() - started)
            if run.worker:
                run.worker.process.join()
            print(f"start {n}: first point after {took[-1]:.2f} s", flush=True)
        registry.shutdown()
    return took


def imported_modules() -> list[str]:
    """Which of the heavy packages the page's process has imported once the page is built."""
    heavy = ["torch", "transformers", "datasets", "matplotlib.pyplot"]
    script = f"import sys, playground.ui.app; print(*[m for m in {heavy} if m in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def import_profile() -> list[list[Any]]:
    """[package, seconds], the longest first: what importing the page takes, by the outermost
    package that Python itself blames
    (-X importtime). Its own clock makes everything slower; the shares are what counts."""
    script = [sys.executable, "-X", "importtime", "-c", "import playground.ui.app"]
    output = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=True).stderr
    own: dict[str, float] = {}
    for line in output.splitlines():
        microseconds, _, name = line.removeprefix("import time:").rpartition("|")
        alone = microseconds.partition("|")[0].strip()
        if alone.isdigit():
            package = name.strip().partition(".")[0]
            own[package] = own.get(package, 0.0) + int(alone) / 1e6
    slowest = sorted(own.items(), key=lambda each: -each[1])[:SLOWEST_IMPORTS]
    return [
        ["all", round(sum(own.values()), 2)],
        *([name, round(seconds, 2)] for name, seconds in slowest),
    ]


def measure() -> dict[str, Any]:
    pages = [page_seconds() for _ in range(REPETITIONS)]
    points = first_point_seconds()
    return {
        "page_seconds": [round(s, 2) for s in pages],
        "cold_first_point_seconds": round(points[0], 2),
        "warm_first_point_seconds": [round(s, 2) for s in points[1:]],
        "imported": imported_modules(),
        "import_profile": import_profile(),
    }


def table(rows: dict[str, Any]) -> str:
    """The figures as Markdown."""
    (_, whole), *slowest = rows["import_profile"]
    pages, warm = rows["page_seconds"], rows["warm_first_point_seconds"]
    return "\n".join(
        [
            "| what | n | median | most |",
            "|---|---|---|---|",
            f"| `python app.py` to an answered page, seconds | {len(pages)} | {median(pages):.1f} "
            f"| {max(pages):.1f} |",
            f"| start of a run to its first point, warm fork server, seconds | {len(warm)} | "
            f"{median(warm):.2f} | {max(warm):.2f} |",
            "| the same, first start right after warm-up, seconds | 1 | "
            f"{rows['cold_first_point_seconds']:.2f} | |",
            "",
            f"Heavy packages in the page's process: {', '.join(rows['imported']) or 'none'} (of "
            "torch, transformers, datasets, pyplot). "
            f"Importing the page takes {whole} s under Python's own clock, of which, without what "
            "they import in turn: "
            f"{', '.join(f'{name} {seconds} s' for name, seconds in slowest)}.",
        ]
    )
