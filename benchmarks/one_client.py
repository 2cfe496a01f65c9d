"""Measure the effect of one hostile client on the other clients.

Run `python -m benchmarks.one_client --seconds 60`. Each attack of tests/support/attacks.py comes
from one address. Meanwhile four other clients poll at 4 Hz, and another one repeatedly opens the
page, uploads a checkpoint, starts a run, requests a prediction and uploads a dataset.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import psutil

from benchmarks._results import save_results
from benchmarks.load_soak import quantiles
from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import ROOT, AppServer
from tests.support.attacks import ATTACKS, Attacker
from tests.support.page_client import PageClient, PollingThread, zipped_small_checkpoint

VIEWERS, POLLS_PER_SECOND = 4, 4
ENVIRONMENT = {
    "GRADIO_SERVER_NAME": "0.0.0.0",
    "PLAYGROUND_SLOTS": "2",
    "PLAYGROUND_IDLE_TIMEOUT_S": "20",
}


def visit(page: PageClient, packed: bytes) -> list[str]:
    """Send the requests of a user; return what was refused."""
    refused = []
    page.get("/")
    if not page.load():
        refused.append("the page's load event")
    subject = page.upload(packed)
    for route, request in (
        ("runs/predict", {"subject": "checkpoint:reverse", "text": "3 1 4"}),
        ("inspect/view", {"subject": "checkpoint:reverse", "view": "attention", "text": "3 1 4"}),
        ("runs/action", {"subject": subject, "action": "rerun"}),
    ):
        answer = page.call(route, **request)
        if "error" in answer:
            refused.append(f"{route}: {answer['error']}")
        elif route == "runs/action":
            page.call("runs/action", subject=answer["subject"], action="stop")
    sent = page.post(
        "/playground/datasets", b"a\tb\nc\td\n" * 30, {"X-Owner": page.owner, "X-Name": "pasted"}
    )
    return refused + ([f"rows: {sent['error']}"] if "others" in sent.get("error", "") else [])


def measure(seconds: float = 60.0) -> dict[str, Any]:
    busy, rows = psutil.cpu_percent(5), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in ("none", *ATTACKS):
            (folder / name.replace(" ", "-")).mkdir()
            app = AppServer(folder / name.replace(" ", "-"), 0, ROOT, (), None, **ENVIRONMENT)
            try:
                packed = zipped_small_checkpoint(folder / name.replace(" ", "-"))
                rows.append({"attack": name} | measure_one(app, name, packed, folder, seconds))
            finally:
                app.stop()
            rows[-1]["tracebacks"] = app.log.read_text(errors="replace").count("Traceback")
            print(rows[-1], flush=True)
    return {"seconds": seconds, "busy_before": busy, "rows": rows}


def measure_one(
    app: AppServer, name: str, packed: bytes, folder: Path, seconds: float
) -> dict[str, Any]:
    """Run one attack, and measure the other clients."""
    PageClient(app, new_owner_key()).call(
        "runs/predict", subject="checkpoint:reverse", text="3 1 4"
    )
    attacker, page = Attacker(app), PageClient(app, new_owner_key())
    viewers = [
        PollingThread(
            PageClient(app, new_owner_key(), keeps_connection=True),
            "checkpoint:reverse",
            POLLS_PER_SECOND,
        )
        for _ in range(VIEWERS)
    ]
    if name in ATTACKS:
        ATTACKS[name](attacker, folder)
    for viewer in viewers:
        viewer.start()
    ends, visits, refused = time.monotonic() + seconds, 0, list[str]()
    try:
        while time.monotonic() < ends:
            try:
                refused += visit(page, packed)
            except (OSError, RuntimeError) as error:
                refused.append(str(error)[:200])
            visits += 1
            time.sleep(1)
    finally:
        for viewer in viewers:
            viewer.stopping.set()
        for viewer in viewers:
            viewer.join(60)
        attacker.stop()
    seconds_by_request = [each for watcher in viewers for each in watcher.response_seconds]
    return {
        "polls": quantiles(seconds_by_request),
        "errors": [error for watcher in viewers for error in watcher.errors][:10],
        "visits": visits,
        "refused": refused[:10],
        "sent": {str(status): n for status, n in sorted(attacker.statuses.items())},
    }


def table(rows: dict[str, Any]) -> str:
    """Format the attacks as Markdown."""
    lines = [
        "| attack, from one address | requests of the attacker, by status | others' polls | p50 ms "
        "| p95 ms | longest ms | visits | rejected |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows["rows"]:
        polls, sent = (
            row["polls"],
            ", ".join(f"{status}: {n:,}" for status, n in row["sent"].items()) or "none",
        )
        refused = len(row["refused"]) + len(row["errors"])
        lines.append(
            f"| {row['attack']} | {sent} | {polls['n']:,} | {polls['p50']:.0f} | "
            f"{polls['p95']:.0f} | {polls['most']:.0f} | {row['visits']} | {refused} |"
        )
    causes = Counter(cause for row in rows["rows"] for cause in (*row["refused"], *row["errors"]))
    lines += [
        "",
        f"Each attack lasts {rows['seconds']:g} s, on the same two cores as the attacker's "
        f"program. CPU load of other processes before the start: {rows['busy_before']:.0f} %. "
        "Status 0: the server closed the connection. Status 429: the rate limit rejected the "
        "request. Tracebacks in the server's log: "
        f"{sum(row['tracebacks'] for row in rows['rows'])}."
        + (
            f" Rejected: {', '.join(f'{cause} ({n})' for cause, n in causes.items())}."
            if causes
            else ""
        ),
    ]
    return "\n".join(lines)


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="How long each attack lasts.",
)
@click.option(
    "--keep",
    "should_save",
    is_flag=True,
    help="Write results/one-client.json, which `python -m benchmarks` puts into RESULTS.md.",
)
def main(seconds: float, should_save: bool) -> None:
    """Attack the app from one address, and print the effect on other clients."""
    rows = measure(seconds)
    print(table(rows))
    if should_save:
        save_results("one-client", rows)


if __name__ == "__main__":
    main()
