"""Linear probes: what a linear classifier reads from the residual stream of each encoder layer.

A probe predicts the token or the position of each vector (Alain and Bengio 2016). A high accuracy
alone may show what the probe learned, not what the model represents. So the same probe also learns
random labels, one for each pair of token and position: a variant of the control task of Hewitt and
Liang (2019). The labels mean nothing, but a layer that represents each pair makes them easier to
fit. The selectivity is the accuracy minus that of the control task.

A probe is a softmax regression, which has one optimum. Sequences of even rows train it, the others
test it.

Shapes: B batch, S source, N vectors, D d_model, C classes.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.tasks.vocabulary import SPECIAL_TOKENS

from .hooks import run_with_cache
from .inspected_model import InspectedModel

NUM_SEQUENCES = 256
L2 = 1e-3  # weight of the squared weights
MAX_ITERATIONS = 200
FEATURES = ("token", "position")


@dataclass(frozen=True)
class ProbeScore:
    """Test accuracies of the probes of one feature; layer 0 is the embedding."""

    layer: int
    feature: str
    accuracy: float
    control_accuracy: float

    @property
    def selectivity(self) -> float:
        return self.accuracy - self.control_accuracy


def probe_layers(subject: InspectedModel, n: int = NUM_SEQUENCES) -> list[ProbeScore]:
    """Return the scores of both features for the embedding and each encoder layer."""
    model, batch = subject.transformer, subject.held_out(n).batch
    names = ["source_embedding"] + [f"encoder_layers.{i}" for i in range(model.config.n_layers)]
    _, calls = run_with_cache(model, batch, names)
    row_N, position_N = (batch.source_BS >= len(SPECIAL_TOKENS)).nonzero(as_tuple=True)
    token_N = batch.source_BS[row_N, position_N] - len(SPECIAL_TOKENS)
    is_training_N = row_N % 2 == 0
    generator = torch.Generator().manual_seed(0)  # of the labels of the control task
    scores = []
    for name, label_N in zip(FEATURES, (token_N, position_N), strict=True):
        n_classes = int(label_N.max()) + 1
        pairs = int(token_N.max()) + 1, int(position_N.max()) + 1
        control = torch.randint(n_classes, pairs, generator=generator).to(label_N.device)
        control_N = control[token_N, position_N]
        for layer, module in enumerate(names):
            x_ND = calls[module][0].output[row_N, position_N].double()
            accuracies = (
                probe_accuracy(x_ND, each_N, n_classes, is_training_N)
                for each_N in (label_N, control_N)
            )
            scores.append(ProbeScore(layer, name, *accuracies))
    return scores


def probe_accuracy(x_ND: Tensor, label_N: Tensor, n_classes: int, is_training_N: Tensor) -> float:
    """Fit a probe to the training vectors, and return its accuracy on the others."""
    x_ND = F.pad(x_ND, (0, 1), value=1.0)  # the bias
    weight_CD = x_ND.new_zeros(n_classes, x_ND.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight_CD], max_iter=MAX_ITERATIONS, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits_NC = x_ND[is_training_N] @ weight_CD.T
        loss = F.cross_entropy(logits_NC, label_N[is_training_N]) + L2 * weight_CD.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    guess_N = (x_ND[~is_training_N] @ weight_CD.detach().T).argmax(-1)
    return float((guess_N == label_N[~is_training_N]).double().mean())
