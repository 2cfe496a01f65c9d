"""Start-up time.

Seconds from `python app.py` to the page, seconds from Train to the first point, and the imported
packages.
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

from playground.jobs.process import warm_up
from playground.runs.registry import Registry
from playground.training.run_config import RunConfig

ROOT = Path(__file__).resolve().parent.parent
REPETITIONS = 5
SLOWEST_IMPORTS = 8  # packages that the import profile names


def page_seconds() -> float:
    """Start the app; return the seconds until the page responds."""
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
    """Start runs in a warm server; return the seconds until their first points."""
    warm_up().join()
    took = []
    with tempfile.TemporaryDirectory() as root:
        registry = Registry(Path(root), slots=REPETITIONS + 1)
        for n in range(REPETITIONS + 1):
            started = time.perf_counter()
            run = registry.start(RunConfig.from_flat({"max_steps": 30}), "benchmark")
            while not run.live.points:
                time.sleep(0.002)
            took.append(time.perf_counter() - started)
            if run.worker:
                run.worker.process.join()
            print(f"start {n}: first point after {took[-1]:.2f} s", flush=True)
        registry.shutdown()
    return took


def imported_modules() -> list[str]:
    """Return the heavy packages that the process of the page has imported."""
    heavy = ["torch", "transformers", "datasets", "matplotlib.pyplot"]
    script = f"import sys, playground.server.app; print(*[m for m in {heavy} if m in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def import_profile() -> list[list[Any]]:
    """Return pairs (package, seconds) of the import of the page, slowest first.

    The times come from `-X importtime`, by outermost package. The profiler slows everything, so
    only the shares matter.
    """
    script = [sys.executable, "-X", "importtime", "-c", "import playground.server.app"]
    output = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=True).stderr
    own: dict[str, float] = {}
    for line in output.splitlines():
        microseconds, _, name = line.removeprefix("import time:").rpartition("|")
        self_time = microseconds.partition("|")[0].strip()
        if self_time.isdigit():
            package = name.strip().partition(".")[0]
            own[package] = own.get(package, 0.0) + int(self_time) / 1e6
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
    """Format the figures as Markdown."""
    (_, whole), *slowest = rows["import_profile"]
    pages, warm = rows["page_seconds"], rows["warm_first_point_seconds"]
    return "\n".join(
        [
            "| what | n | median | maximum |",
            "|---|---|---|---|",
            f"| `python app.py` to the response of the page, seconds | {len(pages)} | "
            f"{median(pages):.1f} | {max(pages):.1f} |",
            f"| start of a run to its first point, warm fork server, seconds | {len(warm)} | "
            f"{median(warm):.2f} | {max(warm):.2f} |",
            "| the same, first start right after warm-up, seconds | 1 | "
            f"{rows['cold_first_point_seconds']:.2f} | |",
            "",
            "The process of the page imports, of torch, transformers, datasets and pyplot: "
            f"{', '.join(rows['imported']) or 'none'}. Importing the page takes {whole} s "
            "(`python -X importtime`). The largest parts, without their own imports: "
            f"{', '.join(f'{name} {seconds} s' for name, seconds in slowest)}.",
        ]
    )
