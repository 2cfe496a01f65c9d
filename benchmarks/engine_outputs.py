"""Outputs of the browser's engine, run by node, against PyTorch's on held-out sequences."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from playground.checkpoints.tensors import serialize_tensors
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.tasks import EOS, PAD
from playground.training.presets import preset_config
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT

N_SEQUENCES = 2000
SEED = 1
BUNDLED = ("reverse", "reverse-one-head", "copy")
SMALL: dict[str, Any] = {"d_model": 32, "n_heads": 4, "d_ff": 64, "max_steps": 600, "seed": SEED}
TRAINED: dict[str, dict[str, Any]] = {
    "decoder-only, RoPE, 2 key/value heads": {
        "architecture": "decoder-only",
        "position_type": "rope",
        "n_kv_heads": 2,
    },
    "encoder-only, T5, SwiGLU, RMSNorm": {
        "architecture": "encoder-only",
        "position_type": "t5",
        "activation": "swiglu",
        "norm_type": "rms",
    },
}
# The folders of the engine and of a model's files come as arguments.
SCRIPT = """
import { readFileSync } from "node:fs";
const [engine, folder] = process.argv.slice(1),
  { buildModel } = await import(engine + "/model.js"),
  { readSafetensors } = await import(engine + "/safetensors.js"),
  bytes = new Uint8Array(readFileSync(folder + "/model.safetensors")),
  { architecture, settings, maxTokens, examples } = JSON.parse(
    readFileSync(folder + "/examples.json", "utf8")),
  model = buildModel(architecture, settings, readSafetensors(bytes.buffer));
let differing = 0, largest = 0;
for (const { source, input, output, logits } of examples) {
  const tokens = model.generate(source, maxTokens),
    { logits_TV } = model.forward(source, input);
  if (tokens.join() !== output.join()) differing++;
  if (logits_TV.length !== logits.length) throw new Error("another number of logits");
  for (let i = 0; i < logits.length; i++)
    largest = Math.max(largest, Math.abs(logits_TV[i] - logits[i]));
}
console.log(JSON.stringify({ differing, largest }));
"""


def train(settings: dict[str, Any]) -> InspectedModel:
    trainer = Trainer(preset_config("fast", SMALL | settings))
    for _ in trainer:
        pass
    return InspectedModel.from_model(trainer.config, trainer.eval_model)


@torch.no_grad()
def describe(subject: InspectedModel) -> dict[str, Any]:
    """Return the settings, and for each held-out sequence what PyTorch computes."""
    batch = subject.held_out(N_SEQUENCES).batch
    model: Any = subject.model  # one with `logits`
    output_BT = model.generate(batch.source_BS, subject.max_target_tokens)
    examples = []
    for source, decoder_input, labels, output, logits_TV in zip(
        batch.source_BS,
        batch.decoder_input_BT,
        batch.labels_BT,
        output_BT.tolist(),
        model.logits(batch),
        strict=True,
    ):
        n_labels = int((labels != PAD).sum())
        examples.append(
            {
                "source": source[source != PAD].tolist(),
                "input": decoder_input[:n_labels].tolist(),
                "output": output[: output.index(EOS) + 1] if EOS in output else output,
                "logits": logits_TV[:n_labels].flatten().tolist(),
            }
        )
    return {
        "architecture": subject.config.architecture,
        "settings": dataclasses.asdict(subject.config.model),
        "maxTokens": subject.max_target_tokens,
        "examples": examples,
    }


def measure_model(name: str, subject: InspectedModel) -> dict[str, Any]:
    content = describe(subject)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.safetensors").write_bytes(serialize_tensors(subject.model.state_dict()))
        Path(folder, "examples.json").write_text(json.dumps(content), encoding="utf-8")
        engine = ROOT / "playground" / "ui" / "static" / "engine"
        command = ["node", "--input-type=module", "-e", SCRIPT, engine.as_uri(), folder]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    batch = subject.held_out(N_SEQUENCES).batch
    return {
        "model": name,
        "seed": subject.config.training.seed,
        "steps": subject.config.training.max_steps,
        "n": len(content["examples"]),
        "exact_match": round(float(subject.model.is_exact_match(batch).float().mean()), 4),
        **json.loads(result.stdout),
    }


def measure() -> list[dict[str, Any]]:
    rows = []
    for name in (*BUNDLED, *TRAINED):
        if name in TRAINED:
            subject = train(TRAINED[name])
        else:
            subject = load_inspected_model(ROOT / "checkpoints" / name)
        rows.append(measure_model(name, subject))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Format the figures as Markdown."""
    lines = [
        "| model | seed | steps | exact match | sequences | different outputs | "
        "largest difference of logits |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['model']} | {row['seed']} | {row['steps']} | {row['exact_match']:.1%} | "
        f"{row['n']:,} | {row['differing']} | {row['largest']:.1e} |"
        for row in rows
    ]
    return "\n".join(lines)
