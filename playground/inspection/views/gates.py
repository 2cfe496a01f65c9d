"""View of the gates and states of a recurrent model.

Shapes: B batch of one, G gates times D, P positions, D hidden state.
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor

from playground.architectures import ARCHITECTURES
from playground.inspection.hooks import ModuleCall, record_activations
from playground.inspection.inspected_model import Example, InspectedModel, NotApplicableError
from playground.models.recurrent import Recurrent
from playground.models.rnn_cells import RNNCellBase

from .fields import MAX_COLUMNS, MAX_ROWS, LayerOrHead, SequenceRequest, answer_fields, json_array

HIDDEN_STATE = "hidden state: the output of the cell at this position"
# The formula and the meaning of each number of a cell; sigma is the logistic function.
QUANTITIES = {
    "lstm": {
        "f": ("σ(W x + U h + b)", "forget gate: the fraction of the memory c that stays"),
        "i": ("σ(W x + U h + b)", "input gate: the fraction of the candidate g that enters c"),
        "g": ("tanh(W x + U h + b)", "candidate: what can enter c, from -1 to 1"),
        "o": ("σ(W x + U h + b)", "output gate: the fraction of tanh(c) that h contains"),
        "c": ("f * c + i * g", "memory cell: what the cell keeps after this position"),
        "h": ("o * tanh(c)", HIDDEN_STATE),
    },
    "gru": {
        "r": ("σ(W x + U h + b)", "reset gate: how much of U h enters the candidate n"),
        "z": ("σ(W x + U h + b)", "update gate: the fraction of the old h that stays"),
        "n": ("tanh(W x + b + r * (U h + b))", "candidate: what can enter h, from -1 to 1"),
        "h": ("(1 - z) * n + z * h", HIDDEN_STATE),
    },
    "rnn": {"h": ("tanh(W x + U h + b)", HIDDEN_STATE + "; a plain RNN has no gates")},
}
STATE_NAMES = ("h", "c")  # the hidden state, and the memory cell of an LSTM
GATES = ("f", "i", "o", "r", "z")  # from 0 to 1; the others have a sign


class GatesRequest(SequenceRequest):
    """A layer of the encoder or decoder, and the gate or state that is returned in full."""

    stack: Literal["encoder", "decoder"] = "encoder"
    layer: LayerOrHead = 0
    quantity: str = ""


def gates(subject: InspectedModel, request: GatesRequest) -> dict[str, Any]:
    """Return the gates and states of one layer: means by position, and one of them in full."""
    model = subject.model
    if not isinstance(model, Recurrent):
        title = ARCHITECTURES["recurrent"].title
        raise NotApplicableError(
            f"only recurrent models have gates; train one with the architecture {title!r}, and "
            "open it here"
        )
    stack, layer = request.stack, min(request.layer, model.config.n_layers - 1)
    quantities = QUANTITIES[model.config.cell]
    # The page may have selected the quantity for a model with another cell.
    quantity = request.quantity if request.quantity in quantities else next(iter(quantities))
    batch = request.example(subject)
    recorded = record_gates(model, batch, f"{stack}_cells.{layer}")
    values_PD = recorded[quantity]
    tokens = batch.source_BS if stack == "encoder" else batch.decoder_input_BT
    return {
        "cell": model.config.cell,
        "stack": stack,
        "layer": layer,
        "layers": model.config.n_layers,
        "tokens": subject.token_names(tokens[0, :MAX_ROWS].tolist()),
        "quantity": quantity,
        "is_gate": quantity in GATES,
        "quantities": [
            {
                "name": name,
                "formula": formula,
                "meaning": meaning,
                # The mean absolute value, because numbers with a sign have a mean near 0.
                "means": json_array(recorded[name][:MAX_ROWS].abs().mean(1), 3),
            }
            for name, (formula, meaning) in quantities.items()
        ],
        "values": json_array(values_PD[:MAX_ROWS, :MAX_COLUMNS], 3),
        "of": list(values_PD.shape),
        **answer_fields(batch),
    }


@torch.no_grad()
def record_gates(model: Recurrent, example: Example, cell_name: str) -> dict[str, Tensor]:
    """Return the gates and next states (PD) of a cell by name, with teacher forcing."""
    with record_activations(model, [cell_name]) as calls:
        model(example.source_BS, example.decoder_input_BT)
    cell = cast(RNNCellBase, model.get_submodule(cell_name))

    def quantities(call: ModuleCall) -> dict[str, Tensor]:
        x_gates_BG, (hidden_BD, *_) = call.inputs
        return cell.gates(x_gates_BG, hidden_BD) | dict(zip(STATE_NAMES, call.output, strict=False))

    positions = [quantities(call) for call in calls[cell_name]]
    return {name: torch.cat([each[name] for each in positions]) for name in positions[0]}
