"""Greedy decoding of 20 symbols, interleaved.

Compared: our model with its key-value cache and without; `generate` of transformers and of
x-transformers with their caches. No model may end early; weights are random, which does not affect
the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from playground.architectures.base import greedy_decode as written_anew
from playground.architectures.encoder_decoder import EncoderDecoder
from playground.generation import generate
from playground.models.config import ModelConfig
from playground.tasks import EOS, SOS

from ._timing import format_interval, rounds, speedup
from .reference_models import OURS, Bart, X, XTransformers, reference_versions

N_SYMBOLS = 20
BATCHES = {1: 5, 256: 1}  # and how often each is answered in a turn
SECONDS = 60  # for each batch
SIZES = ModelConfig(max_positions=N_SYMBOLS + 1)
CACHED = f"{OURS}, key-value cache"
CACHED_ROPE = "with RoPE, key-value cache"
GENERATE = "BART, generate with cache"


def decoding_methods(batch_size: int) -> dict[str, Callable[[], Tensor]]:
    """Return the decoding methods by name.

    Each returns the generated tokens (BT); those of our model are equal.
    """
    torch.manual_seed(0)
    ours, bart, x = EncoderDecoder(SIZES).eval(), Bart(SIZES).eval(), XTransformers(SIZES).eval()
    rope = EncoderDecoder(dataclasses.replace(SIZES, position_type="rope")).eval()
    model: Any = bart.model  # its types know no generate
    for each in (ours, rope):
        each.output_proj.bias.data[EOS] = -1e9
    source_BS = torch.randint(
        EOS + 1,
        SIZES.source_vocab_size,
        (batch_size, N_SYMBOLS + 1),
        generator=torch.Generator().manual_seed(0),
    )
    source_BS[:, -1] = EOS
    start_B1 = torch.full_like(source_BS[:, :1], SOS)
    answer_BT = generate(ours, source_BS, N_SYMBOLS)
    shifted_BT = torch.cat([start_B1, answer_BT[:, :-1]], dim=1)

    def decoder_again() -> Tensor:
        memory_BSD = ours.encode(source_BS)
        return written_anew(
            lambda decoder_input_BT: ours.output_proj(
                ours.decode(decoder_input_BT, memory_BSD, source_BS)[:, -1]
            ),
            source_BS,
            N_SYMBOLS,
        )

    def everything_again() -> Tensor:
        return written_anew(
            lambda decoder_input_BT: ours(source_BS, decoder_input_BT)[:, -1], source_BS, N_SYMBOLS
        )

    def generate_tokens() -> Tensor:
        # Without an EOS there is nothing to look out for, which spares it the processor that would
        # forbid one.
        generation_config: dict[str, Any] = {
            "max_new_tokens": N_SYMBOLS,
            "min_new_tokens": N_SYMBOLS,
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

    def x_generate() -> Tensor:
        return x.model.generate(
            source_BS, start_B1, N_SYMBOLS, mask=torch.ones_like(source_BS).bool(), temperature=0.0
        )

    return {
        CACHED: partial(generate, ours, source_BS, N_SYMBOLS),
        CACHED_ROPE: partial(generate, rope, source_BS, N_SYMBOLS),
        f"{OURS}, decoder anew for each symbol": decoder_again,
        f"{OURS}, everything anew for each symbol": everything_again,
        f"{OURS}, one pass over the right answer": lambda: ours(source_BS, shifted_BT).argmax(-1),
        GENERATE: generate_tokens,
        f"{X}, generate with cache": x_generate,
    }


def measure(seconds: float = SECONDS, batches: Mapping[int, int] = BATCHES) -> dict[str, Any]:
    torch.set_num_threads(1)
    rows = []
    for batch_size, calls in batches.items():
        batch = decoding_methods(batch_size)
        with torch.inference_mode():
            answers = {name: way() for name, way in batch.items()}
            mismatches = [
                name
                for name, answer_BT in answers.items()
                if answer_BT.shape != (batch_size, N_SYMBOLS)
            ]
            ours = [answer_BT for name, answer_BT in answers.items() if name.startswith(OURS)]
            if mismatches or not all(torch.equal(ours[0], other) for other in ours):
                raise RuntimeError(
                    "not what was to be timed: "
                    f"{mismatches or 'ours without cache answers otherwise than with it'}"
                )
            seconds_by_method = rounds(batch, seconds, calls)
        for name, each in seconds_by_method.items():
            over, milliseconds = (
                speedup(each, seconds_by_method[GENERATE]),
                round(1000 * median(each), 2),
            )
            rows.append(
                {
                    "batch": batch_size,
                    "way": name,
                    "n": len(each),
                    "milliseconds": milliseconds,
                    "over": over,
                }
            )
            print(
                f"batch {batch_size}: {name}, {milliseconds} ms, {format_interval(over)} times as "
                "quick as generate",
                flush=True,
            )
    return {"versions": reference_versions(), "rows": rows}


def table(rows: dict[str, Any]) -> str:
    """Format the rows as Markdown."""
    lines = [
        "| batch | way | rounds | milliseconds: median | times as quick as generate: median (95 %) "
        "|",
        "|---|---|---|---|---|",
    ]
    for row in rows["rows"]:
        over = "" if row["way"] == GENERATE else format_interval(row["over"])
        lines.append(
            f"| {row['batch']} | {row['way']} | {row['n']} | {row['milliseconds']:g} | {over} |"
        )
    return "\n".join([*lines, "", f"One thread, seed 0; {rows['versions']}."])
