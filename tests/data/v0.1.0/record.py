"""Record files of version 0.1.0: run `python record.py OUT` with the code of commit e54af3e."""

# mypy: ignore-errors

import os
import shutil
import sys
import time
from pathlib import Path

import torch
from playground.lab.laboratory import Laboratory
from playground.training.checkpoint import save_checkpoint
from safetensors.torch import save_file

from playground import origins
from playground.runs.registry import Registry
from playground.tasks.held_out import held_out_set
from playground.training.config import Change, RunConfig
from playground.training.trainer import Trainer

TINY = {
    "task": "reverse",
    "symbols": 5,
    "min_length": 1,
    "max_length": 5,
    "d_model": 16,
    "n_layers": 1,
    "steps": 3,
    "warmup": 1,
    "decay_steps": 3,
    "final_share": 0.1,
    "batch_size": 8,
    "eval_every": 1,
    "eval_n": 8,
    "threads": 1,
    "device": "cpu",
    "seed": 1,
}
SIZES = {"n_heads": 2, "d_ff": 16}
PAPER = {
    "norm": "post",
    "positions": "sinusoidal",
    "position_scale": 2.0,
    "tie_output": True,
    "share_embeddings": True,
    "bias": False,
    "schedule": "noam",
    "clip": 0.5,
}
ROPE = {
    "positions": "rope",
    "kv_heads": 1,
    "activation": "swiglu",
    "norm_kind": "rms",
    "optimizer": "adamw",
    "weight_decay": 0.1,
    "beta1": 0.8,
    "beta2": 0.9,
    "epsilon": 1e-8,
}
VARIANTS = {
    "transformer": SIZES,
    "transformer-paper": SIZES | PAPER,
    "transformer-rope": SIZES | ROPE,
    "transformer-alibi": SIZES | {"positions": "alibi", "d_k": 4, "d_v": 6, "activation": "gelu"},
    "transformer-t5": SIZES | {"positions": "t5", "attention_bias": False, "until": 0.5},
    "transformer-from-the-end": SIZES
    | {"positions": "from-the-end", "optimizer": "sgd", "momentum": 0.5},
    "transformer-randomised": SIZES | {"positions": "randomised", "position_range": 20},
    "prebuilt": SIZES | {"family": "prebuilt"},
    "encoder-only": SIZES | {"family": "encoder-only"},
    "decoder-only": SIZES | {"family": "decoder-only"},
    "recurrent-gru": {"family": "recurrent", "cell": "gru", "alignment": "additive"},
    "recurrent-lstm": {"family": "recurrent", "cell": "lstm", "alignment": "dot"},
    "recurrent-rnn": {"family": "recurrent", "cell": "rnn", "alignment": "none"},
    "bert": SIZES | {"family": "bert"},
    "gpt2": SIZES | {"family": "gpt2"},
    "bart": SIZES | {"family": "bart"},
}


def record_checkpoint(name: str, out: Path) -> None:
    trainer = Trainer(RunConfig.from_fields(TINY | VARIANTS[name]))
    metrics = [trainer.step() for _ in range(3)]
    scores = trainer.evaluate() if name == "transformer" else None
    resumable = name in ("transformer", "transformer-rope")
    save_checkpoint(out / name, trainer, metrics, scores, resumable=resumable)
    batch, model = held_out_set(trainer.task, 6, 1, 5).batch, trainer.family.eval()
    expected = {"source": batch.source_BS, "target": batch.target_BT}
    with torch.no_grad():
        if hasattr(model, "logits"):
            expected["logits"] = model.logits(batch)
        elif name.startswith("transformer"):
            expected["logits"] = model(batch.source_BS, batch.decoder_input_BT)
        expected["generated"] = model.solve(batch.source_BS, 6)
        for kind, layers in vars(model.record(batch)).items():
            expected |= {f"{kind}.{layer}": weights for layer, weights in enumerate(layers)}
    tensors = {key: tensor.contiguous().clone() for key, tensor in expected.items()}
    save_file(tensors, out / f"{name}.expected.safetensors")


def record_server(root: Path) -> None:
    os.environ["PLAYGROUND_CHECKPOINTS"] = str(root)
    registry = Registry(root)
    lines = [f"{a} {b} {c}\t{c} {b} {a}" for a in "abcd" for b in "abcdefgh" for c in "abcdefghij"]
    rows = origins.from_text("\n".join(lines))
    origins.keep(rows)
    changes = [
        Change(0, "speed", 500.0),
        Change(1, "learning_rate", 0.001),
        Change(1, "until", 0.9),
        Change(2, "steps", 5),
    ]
    lengths = {"min_length": 3, "max_length": 3}
    for run in (
        registry.start(
            RunConfig.from_fields(TINY | SIZES), "ada", name="recorded", changes=changes
        ),
        registry.start(RunConfig.from_fields(TINY | SIZES | rows.settings() | lengths), "ada"),
    ):
        while run.status != "done":
            time.sleep(0.05)
    laboratory = Laboratory(registry)
    spec = {
        "name": "recorded",
        "question": "Does the norm matter?",
        "base": TINY | {"steps": 2},
        "grid": {"norm": ["pre", "post"]},
        "seeds": [0],
    }
    experiment = laboratory.begin(spec, "ada")
    while laboratory.state(experiment, "ada") != "done":
        time.sleep(0.1)
    laboratory.close()
    registry.shutdown()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    for variant in VARIANTS:
        record_checkpoint(variant, folder / "checkpoints")
    record_server(folder / "server")
