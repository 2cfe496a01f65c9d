"""Time greedy decoding of 20 tokens, in interleaved turns.

Compared: our model with its key-value cache and without; `generate` of transformers and of
x-transformers with their caches. No model may end a sequence early. The weights are random, which
does not affect the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from playground.architectures.encoder_decoder import TransformerModel
from playground.architectures.seq2seq_model import generate_tokens
from playground.generation import generate
from playground.models.config import TransformerConfig
from playground.tasks import EOS, SOS

from ._timing import format_interval, rounds, speedup
from .reference_models import OURS, Bart, X, XTransformers, reference_versions

N_TOKENS = 20
BATCHES = {1: 5, 256: 1}  # calls in a turn, by batch size
SECONDS = 60  # for each batch size
SIZES = TransformerConfig(max_positions=N_TOKENS + 1)
CACHED = f"{OURS}, key-value cache"
CACHED_ROPE = "with RoPE, key-value cache"
GENERATE = "BART, generate with cache"


def decoding_methods(batch_size: int) -> dict[str, Callable[[], Tensor]]:
    """Return the decoding methods by name.

    Each returns the generated tokens (BT); those of our model are equal.
    """
    torch.manual_seed(0)
    ours, bart, x = TransformerModel(SIZES).eval(), Bart(SIZES).eval(), XTransformers(SIZES).eval()
    rope = TransformerModel(dataclasses.replace(SIZES, position_type="rope")).eval()
    model: Any = bart.model  # its type has no `generate`
    for each in (ours, rope):
        each.output_proj.bias.data[EOS] = -1e9
    source_BS = torch.randint(
        EOS + 1,
        SIZES.source_vocab_size,
        (batch_size, N_TOKENS + 1),
        generator=torch.Generator().manual_seed(0),
    )
    source_BS[:, -1] = EOS
    start_B1 = torch.full_like(source_BS[:, :1], SOS)
    output_BT = generate(ours, source_BS, N_TOKENS)
    shifted_BT = torch.cat([start_B1, output_BT[:, :-1]], dim=1)

    def decode_without_cache() -> Tensor:
        memory_BSD = ours.encode(source_BS)
        return generate_tokens(
            lambda decoder_input_BT: ours.output_proj(
                ours.decode(decoder_input_BT, memory_BSD, source_BS)[:, -1]
            ).argmax(-1),
            source_BS,
            N_TOKENS,
        )

    def run_without_cache() -> Tensor:
        return generate_tokens(
            lambda decoder_input_BT: ours(source_BS, decoder_input_BT)[:, -1].argmax(-1),
            source_BS,
            N_TOKENS,
        )

    def generate_with_bart() -> Tensor:
        # Without an EOS id, generate needs no logits processor that suppresses it.
        generation_config: dict[str, Any] = {
            "max_new_tokens": N_TOKENS,
            "min_new_tokens": N_TOKENS,
            "num_beams": 1,
            "do_sample": False,
            "use_cache": True,
        }
        return model.generate(
            source_BS,
            attention_mask=torch.ones_like(source_BS),
            eos_token_id=None,
            **generation_config,
        )[:, 1:]

    def generate_with_x_transformers() -> Tensor:
        return x.model.generate(
            source_BS, start_B1, N_TOKENS, mask=torch.ones_like(source_BS).bool(), temperature=0.0
        )

    return {
        CACHED: partial(generate, ours, source_BS, N_TOKENS),
        CACHED_ROPE: partial(generate, rope, source_BS, N_TOKENS),
        f"{OURS}, decoder recomputed for each token": decode_without_cache,
        f"{OURS}, encoder and decoder recomputed for each token": run_without_cache,
        f"{OURS}, one pass over the known output": lambda: ours(source_BS, shifted_BT).argmax(-1),
        GENERATE: generate_with_bart,
        f"{X}, generate with cache": generate_with_x_transformers,
    }


def measure(seconds: float = SECONDS, batches: Mapping[int, int] = BATCHES) -> dict[str, Any]:
    torch.set_num_threads(1)
    rows = []
    for batch_size, calls in batches.items():
        methods = decoding_methods(batch_size)
        with torch.inference_mode():
            outputs = {name: run() for name, run in methods.items()}
            mismatches = [
                name
                for name, output_BT in outputs.items()
                if output_BT.shape != (batch_size, N_TOKENS)
            ]
            ours = [output_BT for name, output_BT in outputs.items() if name.startswith(OURS)]
            if mismatches or not all(torch.equal(ours[0], other) for other in ours):
                raise RuntimeError(
                    f"the outputs differ: {mismatches or 'ours with the cache and without it'}"
                )
            seconds_by_method = rounds(methods, seconds, calls)
        for name, each in seconds_by_method.items():
            ratio = speedup(each, seconds_by_method[GENERATE])
            milliseconds = round(1000 * median(each), 2)
            rows.append(
                {
                    "batch": batch_size,
                    "method": name,
                    "n": len(each),
                    "milliseconds": milliseconds,
                    "speedup": ratio,
                }
            )
            print(
                f"batch {batch_size}: {name}, {milliseconds} ms, {format_interval(ratio)} times as "
                "fast as generate",
                flush=True,
            )
    return {"versions": reference_versions(), "rows": rows}


def table(rows: dict[str, Any]) -> str:
    """Format the rows as Markdown."""
    lines = [
        "| batch | method | rounds | milliseconds: median | times as fast as generate: median "
        "(95 % interval) |",
        "|---|---|---|---|---|",
    ]
    for row in rows["rows"]:
        ratio = "" if row["method"] == GENERATE else format_interval(row["speedup"])
        lines.append(
            f"| {row['batch']} | {row['method']} | {row['n']} | {row['milliseconds']:g} | {ratio} |"
        )
    return "\n".join([*lines, "", f"One thread, seed 0; {rows['versions']}."])
