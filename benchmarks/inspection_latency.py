"""Latency of the Inspect tab.

Measured: recording all attention weights compared with a plain forward pass, and the time from a
changed sequence to the redrawn view in Chromium, for the bundled model and for one with 8 layers, 8
heads and 64 tokens.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from playground.training.run_config import RunConfig
from tests.support.app_server import ROOT, AppServer
from tests.support.chromium import FLAGS, find_browser

N_PASSES = 60
N_CHANGES = 40
LARGE_MODEL = {
    "n_layers": 8,
    "n_heads": 8,
    "d_model": 64,
    "d_ff": 128,
    "min_length": 63,
    "max_length": 63,
    "max_steps": 1,
}
# In the page: from the input event to the frame after the view is drawn.
CHANGED_JS = """text => new Promise(resolve => {
  const root = document.querySelector('.inspect');
  const box = document.querySelector('.page-bar .sequence');
  const started = performance.now();
  const watcher = new MutationObserver(() => {
    if (!root.dataset.drawn || !root.dataset.drawn.endsWith(text)) return;
    watcher.disconnect();
    requestAnimationFrame(() => resolve(performance.now() - started));
  });
  watcher.observe(root, { attributes: true, attributeFilter: ['data-drawn'] });
  box.value = text;
  box.dispatchEvent(new Event('input', { bubbles: true })); })"""


def recording() -> dict[str, float]:
    """Return milliseconds of a forward pass of 128 sequences, plain and recorded."""
    import torch

    from playground.inspection.attention_recording import record_teacher_forced
    from playground.inspection.inspected_model import load_inspected_model

    torch.set_num_threads(1)
    subject = load_inspected_model(ROOT / "checkpoints" / "reverse")
    batch = subject.held_out(128).batch
    plain, recorded = [], []
    with torch.no_grad():
        for _ in range(N_PASSES):
            started = time.perf_counter()
            subject.transformer(batch.source_BS, batch.decoder_input_BT)
            between = time.perf_counter()
            record_teacher_forced(subject.transformer, batch)
            plain.append(between - started)
            recorded.append(time.perf_counter() - between)
    ratios = sorted(b / a for a, b in zip(plain, recorded, strict=True))
    return {
        "plain_ms": round(1000 * median(plain), 2),
        "recorded_ms": round(1000 * median(recorded), 2),
        "ratio": round(median(ratios), 3),
        "ratio_p95": round(ratios[int(0.95 * len(ratios))], 3),
    }


def large_model(folder: Path) -> None:
    """Write a large checkpoint of one step; only its size matters here."""
    from playground.checkpoints.checkpoint import save_checkpoint
    from playground.training.trainer import Trainer

    trainer = Trainer(RunConfig.from_flat(LARGE_MODEL))
    trainer.train_step()
    save_checkpoint(folder, trainer, None, None, resumable=False)


def changes(page: Page, subject: str, length: int, n: int) -> dict[str, float]:
    page.select_option(".page-bar .subject", subject)
    page.wait_for_timeout(2000)
    seconds = []
    for number in range(n + 5):
        text = " ".join(str((7 * number + 3 * place) % 10) for place in range(length))
        seconds.append(page.evaluate(CHANGED_JS, text))
    seconds = sorted(seconds[5:])
    return {
        "n": n,
        "median": round(median(seconds)),
        "p95": round(seconds[int(0.95 * len(seconds))]),
        "most": round(seconds[-1]),
    }


def measure() -> dict[str, Any]:
    result: dict[str, Any] = {"recording": recording()}
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        root = Path(scratch) / "checkpoints"
        root.mkdir()
        shutil.copytree(ROOT / "checkpoints" / "reverse", root / "reverse")
        large_model(root / "large")
        app = AppServer(Path(scratch))
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 950})
        page.goto(app.url)
        page.wait_for_selector(".live[data-status=checkpoint]")
        page.get_by_role("tab", name="Inspect").click()
        page.wait_for_selector(".inspect[data-drawn]")
        result["default"] = changes(page, "checkpoint:reverse", 8, N_CHANGES)
        # an untrained model's own answer may end at once
        page.click(".of-attention [data-value=right]")
        result["large"] = changes(page, "checkpoint:large", 63, 15)
        browser.close()
        app.stop()
    return result


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    cost = rows["recording"]
    return "\n".join(
        [
            "| from a changed sequence to a redrawn attention view, milliseconds | n | median | "
            "95th percentile | maximum |",
            "|---|---|---|---|---|",
            *(
                f"| {name} | {rows[key]['n']} | {rows[key]['median']} | {rows[key]['p95']} | "
                f"{rows[key]['most']} |"
                for name, key in (
                    ("2 layers × 4 heads, 8 symbols", "default"),
                    ("8 layers × 8 heads, 63 symbols", "large"),
                )
            ),
            "",
            "A forward pass of 128 sequences that records all attention takes "
            f"{cost['recorded_ms']} ms, and one without recording {cost['plain_ms']} ms (medians). "
            f"Of {N_PASSES} pairs of passes, the ratio has a median of {cost['ratio']} and a 95th "
            f"percentile of {cost['ratio_p95']}; one thread.",
        ]
    )
