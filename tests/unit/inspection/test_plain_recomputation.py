"""Scores of the inspection, recomputed in plain torch from the weights and the definitions.

Nothing here uses a function of the playground, except to build the model and the sequences. Each
sequence is computed alone, without padding, in double precision.
"""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax

from playground.architectures.decoder_only import DecoderOnlyModel
from playground.inspection.ablation import Ablation
from playground.inspection.activation_patching import corrupt, patch_layers, similar_pairs
from playground.inspection.hooks import all_heads
from playground.inspection.induction import induction_scores
from playground.inspection.inspected_model import InspectedModel
from playground.inspection.probes import probe_layers
from playground.training.run_config import RunConfig
from tests.support.handcrafted_models import random_model

MAX_DIFFERENCE = 1e-5
N = 40  # sequences


class Plain:
    """A pre-norm transformer with learned positions, from its weights."""

    def __init__(self, model):
        self.w = {name: each.detach().double() for name, each in model.state_dict().items()}
        self.n_heads, self.n_layers = model.config.n_heads, model.config.n_layers
        self.heads, self.patterns, self.replaced = {}, {}, {}
        self.vectors, self.patched = {}, {}  # of the residual stream, by module

    def linear(self, x, name):
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def norm(self, x, name):
        centered = x - x.mean(-1, keepdim=True)
        scaled = centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def embed(self, tokens, name):
        table = self.w[f"{name}.token_embedding.weight"]
        scale = math.sqrt(table.shape[1])
        positions = self.w[f"{name}.position_embedding"][: len(tokens)]
        return self.store(table[tokens] * scale + positions, name)

    def store(self, x, name):
        """Record the vectors that a module outputs, one of them replaced where a test patches."""
        self.vectors[name] = x
        for position, vectors in self.patched.get(name, {}).items():
            x = x.clone()
            x[position] = vectors[position]
        return x

    def attend(self, x, memory, name, is_causal):
        query, key, value = (
            self.linear(each, f"{name}.{part}_proj").unflatten(-1, (self.n_heads, -1))
            for each, part in ((x, "q"), (memory, "k"), (memory, "v"))
        )
        outputs = []
        for head in range(self.n_heads):
            scores = query[:, head] @ key[:, head].T / math.sqrt(key.shape[-1])
            if is_causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
            self.patterns[name, head] = scores.softmax(-1)
            self.heads[name, head] = self.patterns[name, head] @ value[:, head]
            replaced = self.replaced.get((name, head), self.heads[name, head])
            outputs.append(replaced[: len(x)])
        return self.linear(torch.cat(outputs, -1), f"{name}.out_proj")

    def layers(self, x, name, memory=None, is_causal=True):
        for layer in range(self.n_layers):
            at = f"{name}.{layer}"
            y = self.norm(x, f"{at}.self_attn_residual.norm")
            x = x + self.attend(y, y, f"{at}.self_attn", is_causal)
            if memory is not None:
                y = self.norm(x, f"{at}.cross_attn_residual.norm")
                x = x + self.attend(y, memory, f"{at}.cross_attn", False)
            y = self.norm(x, f"{at}.feed_forward_residual.norm")
            y = self.linear(y, f"{at}.feed_forward.up_proj").relu()
            x = self.store(x + self.linear(y, f"{at}.feed_forward.down_proj"), at)
        return x

    def logits(self, source, decoder_input):
        """Return the logits of an encoder-decoder."""
        memory = self.norm(
            self.layers(self.embed(source, "source_embedding"), "encoder_layers", None, False),
            "encoder_norm",
        )
        x = self.layers(self.embed(decoder_input, "target_embedding"), "decoder_layers", memory)
        return self.linear(self.norm(x, "decoder_norm"), "output_proj")

    def log_prob(self, source, decoder_input, labels):
        """Return the log-probability of the labels."""
        logs = self.logits(source, decoder_input).log_softmax(-1)
        return sum(float(logs[i, label]) for i, label in enumerate(labels.tolist()))


def unpadded(batch):
    """Return source, decoder input and labels of each sequence."""
    rows = zip(batch.source_BS, batch.decoder_input_BT, batch.labels_BT, strict=True)
    return [
        (source[source > 0], decoder_input[labels > 0], labels[labels > 0])
        for source, decoder_input, labels in rows
    ]


def test_induction_scores_equal_their_definitions():
    torch.manual_seed(0)
    settings = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 24, "max_length": 8}
    config = RunConfig.from_flat(settings | {"architecture": "decoder-only", "task": "repeat"})
    model = DecoderOnlyModel(config.model)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    batch = InspectedModel.from_model(config, model).held_out(N).batch
    plain, matching, copying = Plain(model), {}, {}
    for source, decoder_input, _ in unpadded(batch):
        tokens = [*source.tolist(), *decoder_input[1:].tolist()]
        plain.layers(plain.embed(torch.tensor(tokens), "embedding"), "layers")
        for (name, head), pattern in plain.patterns.items():
            out = plain.w[f"{name}.out_proj.weight"].unflatten(1, (2, -1))[:, head]
            for at in range(len(source), len(tokens)):  # the repetition
                earlier = max(i for i in range(at) if tokens[i] == tokens[at])
                matching.setdefault((name, head), []).append(float(pattern[at, earlier + 1]))
                effect = out @ plain.heads[name, head][at]
                centered = (effect - effect.mean()) * plain.w["norm.weight"]
                logits = plain.w["output_proj.weight"] @ centered
                raised = (logits - logits.mean()).clamp(min=0)
                attended = tokens[int(pattern[at].argmax())]
                copying.setdefault((name, head), []).append(float(raised[attended] / raised.sum()))
    for score in induction_scores(model, batch):
        key = f"layers.{score.layer}.self_attn", score.head
        assert abs(score.prefix_matching - sum(matching[key]) / len(matching[key])) < MAX_DIFFERENCE
        assert abs(score.copying - sum(copying[key]) / len(copying[key])) < MAX_DIFFERENCE


@pytest.mark.parametrize("method", ["mean", "resample"])
def test_ablations_of_heads_equal_their_definitions(method):
    subject = random_model()
    ablation, plain = Ablation(subject, N), Plain(subject.transformer)
    rows = unpadded(ablation.batch)
    recorded = []
    for row in rows:
        plain.log_prob(*row)
        recorded.append(dict(plain.heads))
    lengths = [(len(source), len(labels)) for source, _, labels in rows]
    for head in all_heads(subject.transformer.config):
        key = head.module_name, head.head
        outputs = [heads[key] for heads in recorded]
        total = 0.0
        for at, row in enumerate(rows):
            if method == "mean":
                longest = range(max(map(len, outputs)))
                places = [[each[i] for each in outputs if len(each) > i] for i in longest]
                value = torch.stack([torch.stack(place).mean(0) for place in places])
            else:  # the next sequence of the same lengths, after the last the first
                same = [i for i, each in enumerate(lengths) if each == lengths[at]]
                value = outputs[same[(same.index(at) + 1) % len(same)]]
            plain.replaced = {key: value}
            total += plain.log_prob(*row)
        plain.replaced = {}
        assert abs(ablation.ablate([head], method).ablated.log_prob - total / N) < MAX_DIFFERENCE


def test_patching_by_layer_and_position_equals_its_definition():
    subject, at, n_pairs = random_model(), 1, 3
    pair = corrupt(subject.encode_text("3 1 4 1"), at)
    plain = Plain(subject.transformer)
    pairs = []
    for source, decoder_input, labels in unpadded(subject.held_out(512).batch):
        if len(source) == 5 and len(pairs) < n_pairs:
            other = source.clone()
            other[at] = 3 + (source[at] - 3 + 1) % 10  # the next digit
            pairs.append((source, other, decoder_input, 4 - 1 - at, int(labels[4 - 1 - at])))

    def total(side, recorded=None):
        """Return the summed logit differences of a side; the vectors may be of another run."""
        result, runs = 0.0, []
        for i, (*sources, decoder_input, t, token) in enumerate(pairs):
            source = sources[side]
            if recorded:
                (name, position), vectors = recorded
                plain.patched = {name: {position: vectors[i][name]}}
            logits = plain.logits(source, decoder_input)[t]
            plain.patched = {}
            runs.append(dict(plain.vectors))
            result += float(logits[token] - logits[3 + (token - 3 + 1) % 10])
        return result, runs

    (clean, clean_runs), (corrupted, corrupted_runs) = total(0), total(1)
    for table in patch_layers(similar_pairs(pair, n_pairs)).values():
        for layer, name in enumerate(table.layers):
            for position in range(5):
                key = name, position
                restored = total(1, (key, clean_runs))[0] - corrupted
                lost = clean - total(0, (key, corrupted_runs))[0]
                for tensor, change in ((table.restored_LP, restored), (table.lost_LP, lost)):
                    value = float(tensor[layer, position])
                    assert abs(value - change / (clean - corrupted)) < MAX_DIFFERENCE


def softmax_regression(x, labels, n_classes, l2):
    """Return the weights of a softmax regression with a bias."""
    x, one_hot = np.c_[x, np.ones(len(x))], np.eye(n_classes)[labels]

    def loss_and_gradient(weights):
        weights = weights.reshape(n_classes, -1)
        logs = log_softmax(x @ weights.T, axis=1)
        gradient = (np.exp(logs) - one_hot).T @ x / len(x) + 2 * l2 * weights
        loss = -(logs * one_hot).sum() / len(x) + l2 * (weights**2).sum()
        return loss, gradient.ravel()

    start = np.zeros(n_classes * x.shape[1])
    options = {"maxiter": 10_000, "gtol": 1e-9, "ftol": 1e-15}
    result = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    return result.x.reshape(n_classes, -1)


def test_probe_accuracies_equal_a_regression_by_scipy():
    subject = random_model()
    batch = subject.held_out(N).batch
    plain, rows = Plain(subject.transformer), []
    for at, (source, _, _) in enumerate(unpadded(batch)):
        x = plain.embed(source, "source_embedding")
        layers = [x]
        for plain.n_layers in (1, 2):
            layers.append(plain.layers(x, "encoder_layers", None, False))
        rows += [
            (at, int(source[i]) - 3, i, [each[i].numpy() for each in layers])
            for i in range(len(source) - 1)  # without EOS
        ]
    row, token, position = (np.array([each[i] for each in rows]) for i in range(3))
    is_training, generator = row % 2 == 0, torch.Generator().manual_seed(0)
    scores = iter(probe_layers(subject, N))
    for labels in (token, position):
        n_classes, pairs = labels.max() + 1, (int(token.max()) + 1, int(position.max()) + 1)
        control = torch.randint(int(n_classes), pairs, generator=generator).numpy()
        for layer in range(3):
            score, x = next(scores), np.stack([each[3][layer] for each in rows])
            for measured, each in (
                (score.accuracy, labels),
                (score.control_accuracy, control[token, position]),
            ):
                weights = softmax_regression(x[is_training], each[is_training], n_classes, 1e-3)
                logits = np.c_[x, np.ones(len(x))][~is_training] @ weights.T
                accuracy = (logits.argmax(1) == each[~is_training]).mean()
                assert abs(measured - accuracy) < MAX_DIFFERENCE
