"""Write docs/sources.md: what the app computes beside what its sources state.

    python -m scripts.write_sources            write the document
    python -m scripts.write_sources --check    exit with 1 if a number or link has changed

Every number is computed here with the code of the app, on the bundled checkpoints and on the small
pretrained encoder of the development requirements. Results of training come from
benchmarks/results/published.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from playground.experiments.claims import CLAIMS
from playground.inspection.embeddings import wavelength
from playground.inspection.masks import (
    TUTORIAL_EXAMPLE,
    padding_mask_row,
)
from playground.inspection.parameter_counts import (
    count_parameters,
)
from playground.inspection.views.export import LAYER_NAMES
from playground.lessons.bugs import BUGS
from playground.models.config import ModelConfig, paper_base_config
from playground.pretrained.model_facts import ARCHITECTURE_FACTS, ARCHITECTURE_TREE
from playground.training.presets import PRESETS
from scripts.source_numbers import (
    GATED,
    MANY_TO_ONE,
    MODERN,
    TORCH_LAYERS,
    attention_memory_by_length,
    attention_output,
    attention_type_shapes,
    base_formulas,
    base_totals,
    batch_shape,
    convolution_difference,
    cross_attention_order,
    few_shot_examples,
    gates_difference,
    gpt3_total,
    head_shapes,
    many_to_one,
    minilm_heads,
    mixed_values,
    modern_parameters,
    noam_peak,
    paper_training,
    position_independence,
    practical_lengths,
    probability_sum,
    projection_shapes,
    queen_rank,
    recurrent_experiment,
    reversed_sequence,
    schedule_peaks,
    separate_heads,
    smoothed_target,
    softmax_rows,
    torch_layers_difference,
    torch_layers_parameters,
    tutorial_parameters,
    typed_masks,
    well_known_sizes,
    word_in_context,
    word_order,
)

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "sources.md"
RESULTS = ROOT / "benchmarks" / "results" / "published.json"
HEADER = """# Sources

What the app shows from the write-ups that it follows, with the published number beside the computed
one. `python -m scripts.write_sources` writes this page, and a test compares it with the code. The
links open the view on a local instance (`python app.py`).

Sources: **A** a tutorial on the transformer for the reversal task; **B** a transformer from scratch
after the paper; **C** notes with recurrent models beside the transformer; **D** a walk through
masks in Keras; **E** a tutorial on the architecture with training technique. The paper is Vaswani
et al. 2017, Attention Is All You Need.

"""

PUBLISHED_HEADER = """
## Published results, trained again

`python -m benchmarks published` trains every claim. The Lab shows the
settings, their differences from the source, and the duration. It draws the published values of
the Annotated Transformer, grokking and the benchmark page beside those of the runs.

| claim | published | ours | seeds | |
|---|---|---|---|---|"""


@dataclass(frozen=True)
class Row:
    """One row: what a source shows, its number, the number computed here, and the view."""

    source: str
    subject: str
    published: str
    compute: Callable[[], str]
    place: str
    query: str


def link(tab: str, **state: Any) -> str:
    """Return the query of a link to a view."""
    return f"{tab}={quote(json.dumps(state, separators=(',', ':')))}"


def settings_link(preset: str, **settings: Any) -> str:
    """Return the query of a link that fills the form with the settings of a preset."""
    values = {**PRESETS[preset].settings, **settings}
    return "settings=" + quote(json.dumps(values, separators=(",", ":")))


def inspect(view: str, **options: Any) -> str:
    return link("inspect", subject="checkpoint:reverse", view=view, options=options)


UNMASKED, MASKED = (
    "; ".join(" ".join(f"{value:.4f}" for value in row) for row in TUTORIAL_EXAMPLE[name])
    for name in ("unmasked", "masked")
)
PUBLISHED_SOFTMAX = (UNMASKED, MASKED)
ROWS = [
    Row(
        "A",
        "The network from torch's prebuilt layers, learned positions",
        "172,756 (counted by hand)",
        torch_layers_parameters,
        "Train",
        "settings=" + quote(json.dumps(TORCH_LAYERS)),
    ),
    Row(
        "A",
        "Logits of torch's layers and of the transformer from scratch with the same weights; after "
        "training: the views of Inspect",
        "no number",
        torch_layers_difference,
        "Train",
        "settings=" + quote(json.dumps(TORCH_LAYERS)),
    ),
    Row(
        "A",
        "The same network from scratch, vocabulary 20, d_ff 256",
        "no number",
        tutorial_parameters,
        "Train, with the settings of the preset Tutorial",
        settings_link("tutorial", n_symbols=17, d_ff=256),
    ),
    Row(
        "A",
        "Wavelength of dimension 0 of the sinusoid",
        "about 5, read off a figure",
        lambda: f"{wavelength(0, 64):.2f}",
        "Inspect, Embeddings and positions",
        inspect("embeddings"),
    ),
    Row(
        "A",
        "Wavelength of dimension 14 of 64",
        "about 40, read off a figure",
        lambda: f"{wavelength(14, 64):.1f}",
        "Inspect, Embeddings and positions",
        inspect("embeddings"),
    ),
    Row(
        "A",
        "Scores and attention of “sat” in every head of a pretrained encoder",
        "no number",
        minilm_heads,
        "Compare, Attention",
        link("compare", view="pretrained", section="attention"),
    ),
    Row(
        "A",
        "5 3 9 in six steps",
        "9 3 5",
        reversed_sequence,
        "Inspect, Activations",
        inspect("trace"),
    ),
    Row(
        "A",
        "The values that one token mixes, encoder layer 1, head 1",
        "such as 0.7, 0.2, 0.1",
        mixed_values,
        "Inspect, Activations",
        inspect("trace"),
    ),
    Row(
        "A",
        "Source positions with the largest cross-attention, for the output 9 3 5",
        "3 2 1",
        cross_attention_order,
        "Inspect, Attention",
        inspect("attention", kind="cross"),
    ),
    Row(
        "A, C",
        "RNN, seq2seq, attention and the transformer on one task",
        "no number",
        recurrent_experiment,
        "Lab, Where do recurrent models break?",
        "tab=lab",
    ),
    Row(
        "B",
        "The paper's sizes with a vocabulary of 30,000",
        "no number",
        lambda: f"{sum(count_parameters(paper_base_config()).values()):,}",
        "Inspect, Masks and shapes",
        inspect("sizes", of="paper"),
    ),
    Row(
        "B",
        "“The dog bit the man” and “The man bit the dog”: distance of the two sets of vectors",
        "0 without positions, more with",
        word_order,
        "Inspect, Embeddings and positions",
        inspect("embeddings"),
    ),
    Row(
        "B",
        "Sum of the probabilities after log-softmax",
        "1",
        probability_sum,
        "Inspect, Logit lens",
        inspect("lens"),
    ),
    Row(
        "C",
        "Heads with d_k and d_v of their own: 4 heads, d_model 64, d_k 24, d_v 8",
        "no number",
        lambda: head_shapes(ModelConfig(d_model=64, n_heads=4, d_k=24, d_v=8)),
        "Train",
        "settings=" + quote(json.dumps({"d_k": 24, "d_v": 8})),
    ),
    Row(
        "C",
        "Heads as separate modules beside the joined matrices, encoder layer 1 of the model",
        "equal",
        separate_heads,
        "Inspect, Masks and shapes",
        inspect("sizes"),
    ),
    Row(
        "C",
        "The feed-forward network as two convolutions of width 1",
        "equal",
        convolution_difference,
        "Inspect, Activations",
        inspect("trace"),
    ),
    Row(
        "C",
        "Gates of an LSTM (f, i, o) and a GRU (r, z) at every position; after training: Inspect, "
        "Forward pass, Gates of a recurrent model",
        "no number",
        gates_difference,
        "Train",
        "settings=" + quote(json.dumps(GATED)),
    ),
    Row(
        "C",
        "A many-to-one recurrent model: the parity of a sequence",
        "no number",
        many_to_one,
        "Train",
        "settings=" + quote(json.dumps(MANY_TO_ONE)),
    ),
    Row(
        "C",
        "Are positions up to 10000 · 2π linearly independent? d_model 64",
        "practically",
        position_independence,
        "Inspect, Embeddings and positions",
        inspect("embeddings"),
    ),
    Row(
        "C",
        "king − man + woman",
        "queen",
        queen_rank,
        "Compare, Word embeddings",
        link("compare", view="pretrained", section="analogy"),
    ),
    Row(
        "D",
        "Padding mask of 87 600 0 0 0",
        "1 1 0 0 0",
        lambda: " ".join(map(str, padding_mask_row([87, 600, 0, 0, 0]))),
        "Inspect, Masks and shapes",
        inspect("sizes"),
    ),
    Row(
        "D",
        "Both masks of the decoder for the same token ids, which can be typed",
        "no number",
        typed_masks,
        "Inspect, Masks and shapes",
        inspect("sizes", tokens="87 600 0 0 0"),
    ),
    Row(
        "D",
        "Softmax without the padding mask",
        PUBLISHED_SOFTMAX[0],
        lambda: softmax_rows(False),
        "Inspect, Masks and shapes",
        inspect("sizes"),
    ),
    Row(
        "D",
        "Softmax with the padding mask",
        PUBLISHED_SOFTMAX[1],
        lambda: softmax_rows(True),
        "Inspect, Masks and shapes",
        inspect("sizes"),
    ),
    Row(
        "D",
        "Four types of attention on one input",
        "no number",
        attention_type_shapes,
        "Inspect, Masks and shapes",
        inspect("sizes"),
    ),
    Row(
        "D",
        "Names of the weights of every decoder layer, in the exported file",
        "decoder_layer1_block1_self_att, decoder_layer1_block2_decenc_att",
        lambda: ", ".join(LAYER_NAMES[kind].format(1) for kind in ("decoder", "cross")),
        "Inspect, Attention",
        inspect("attention"),
    ),
    Row(
        "D",
        "Parameters of well-known models",
        "110 M, 117 M, 175 B",
        well_known_sizes,
        "Compare, Model sizes",
        link("compare", view="pretrained", section="sizes"),
    ),
    Row(
        "D",
        "Heads as wide as the model: 4 heads, d_model 64, key_dim 64",
        "no number",
        lambda: head_shapes(ModelConfig(d_model=64, n_heads=4, d_k=64, d_v=64)),
        "Train",
        "settings=" + quote(json.dumps({"d_k": 64, "d_v": 64})),
    ),
    Row(
        "D",
        "GPT-3 by part",
        "175 B",
        gpt3_total,
        "Compare, Model sizes",
        link("compare", view="pretrained", section="sizes"),
    ),
    Row(
        "E",
        "Attention weights of 1 head, 4 tokens, d_k 8: sum of a row",
        "1.0000",
        lambda: f"{float(attention_output()[0][0, 0, 0].sum()):.4f}",
        "Inspect, Masks and shapes",
        inspect("sizes"),
    ),
    Row(
        "E",
        "Output of multi-head attention for a batch of 2×10×512",
        "2×10×512",
        batch_shape,
        "Inspect, Masks and shapes",
        inspect("sizes"),
    ),
    Row(
        "E",
        "Explicit and fused attention",
        "equal",
        lambda: f"equal within {1e-6 if attention_output()[1] < 1e-6 else 1:g}",
        "Inspect, Masks and shapes",
        inspect("sizes", measure="yes"),
    ),
    Row(
        "E",
        "RoPE, RMSNorm, SwiGLU and grouped-query attention in one model",
        "no number",
        modern_parameters,
        "Train",
        "settings=" + quote(json.dumps(MODERN)),
    ),
    Row(
        "E",
        "Training technique",
        "label smoothing 0.1, Adam(0.9, 0.98, 1e-9), warm-up 4,000, clipping at 1.0",
        paper_training,
        "Train, with the settings of the preset The paper",
        settings_link("paper"),
    ),
    Row(
        "E",
        "Shapes of multi-head attention, d_model 512, 8 heads, 10 tokens",
        "W_Q 512×64 per head, W_O 512×512",
        projection_shapes,
        "Inspect, Masks and shapes",
        inspect("sizes"),
    ),
    Row(
        "E",
        "Parameters of the base model",
        "100,970,632; nn.Transformer without a printed number",
        base_totals,
        "Inspect, Masks and shapes",
        inspect("sizes", of="tutorial"),
    ),
    Row(
        "E",
        "Formulas of the parameter counts, base model",
        "4 × 512 × 512 per attention, 2 × 512 × 2048 per feed-forward network, 2 × 512 per norm",
        base_formulas,
        "Inspect, Masks and shapes",
        inspect("sizes", of="tutorial"),
    ),
    Row(
        "E",
        "A target with label smoothing of 0.1, vocabulary of 13",
        "no number",
        smoothed_target,
        "Inspect, Loss and learning rate",
        inspect("training"),
    ),
    Row(
        "E",
        "Picture of the paper's learning rate over 20,000 steps",
        "no number",
        schedule_peaks,
        "Inspect, Loss and learning rate",
        inspect("training"),
    ),
    Row(
        "E",
        "The paper's learning rate",
        "rises until step 4,000",
        noam_peak,
        "Train, with the settings of the preset The paper",
        settings_link("paper"),
    ),
    Row(
        "E",
        "Families of architectures",
        "three",
        lambda: (
            f"{len(ARCHITECTURE_FACTS)}: "
            + ", ".join(row["architecture"] for row in ARCHITECTURE_FACTS)
        ),
        "Compare, Architectures",
        link("compare", view="architectures"),
    ),
    Row(
        "E",
        "Family tree, 2017 to 2023",
        "six names, T5 with 2020",
        lambda: ", ".join(f"{row['name']} {row['year']}" for row in ARCHITECTURE_TREE),
        "Compare, Architectures",
        link("compare", view="architectures"),
    ),
    Row(
        "E",
        "Memory of attention weights in float32",
        "512: 1 MB; 2,048: 16 MB; 8,192: 256 MB; 128,000: 64 GB (1 MB is 1,048,576 B; 64 GB belong "
        "to 131,072 tokens)",
        attention_memory_by_length,
        "Inspect, Masks and shapes",
        inspect("sizes", measure="yes"),
    ),
    Row(
        "E",
        "Practical? Where the attention weights of BERT base fit, 12 layers of 12 heads; lengths "
        "can be typed",
        "in words",
        practical_lengths,
        "Inspect, Masks and shapes",
        inspect("sizes", lengths="4,096 32,768"),
    ),
    Row(
        "E",
        "Few-shot prompts, with advice and its sources",
        "advice",
        few_shot_examples,
        "Compare, Text generation",
        link("compare", view="pretrained", section="continue"),
    ),
    Row(
        "E",
        "One word with two meanings, layer by layer",
        "no number",
        word_in_context,
        "Compare, Polysemy",
        link("compare", view="pretrained", section="banks"),
    ),
    Row(
        "A to E",
        "Mistakes of the write-ups",
        "seven",
        lambda: f"{len(BUGS)} exercises",
        "Learn, Find the bug",
        "bug=random",
    ),
]


def published_rows() -> list[str]:
    """Return the rows of the replications, from their results file."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    return [
        f"| {CLAIMS[row['name']].title} | {CLAIMS[row['name']].statement} | {row['result']} | "
        f"{row['seeds']} | {row['verdict']} |"
        for row in rows
    ]


def format_row(row: Row) -> str:
    return (
        f"| {row.source} | {row.subject} | {row.published} | {row.compute()} | "
        f"[{row.place}](http://127.0.0.1:7860/?{row.query}) |"
    )


def document() -> str:
    return "\n".join(
        [
            HEADER + "| source | what | published | computed here | in the app |",
            "|---|---|---|---|---|",
            *map(format_row, ROWS),
            PUBLISHED_HEADER,
            *published_rows(),
            "",
        ]
    )


def main() -> None:
    text = document()
    if "--check" not in sys.argv:
        DOCUMENT.write_text(text, encoding="utf-8")
    elif text != DOCUMENT.read_text(encoding="utf-8"):
        sys.exit("docs/sources.md is out of date; run python -m scripts.write_sources")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
