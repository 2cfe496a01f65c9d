"""View of the gates and states of a recurrent model.

Shapes: P positions, D hidden state.
"""

from typing import Any

from playground.architectures import ARCHITECTURES
from playground.inspection.inspected_model import InspectedModel, NotApplicableError
from playground.inspection.recurrent_gates import STACKS, record_gates
from playground.models.recurrent import Recurrent

from .common import answer_fields
from .request import (
    MAX_COLUMNS,
    MAX_ROWS,
    choice_field,
    int_field,
    json_array,
    source_text,
    text_field,
)

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
GATES = ("f", "i", "o", "r", "z")  # from 0 to 1; the others have a sign


def gates(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the gates and states of one layer: means by position, and one of them in full."""
    model = subject.model
    if not isinstance(model, Recurrent):
        title = ARCHITECTURES["recurrent"].title
        raise NotApplicableError(
            f"only recurrent models have gates; train one with the architecture {title!r}, and "
            "open it here"
        )
    stack = choice_field(request, "stack", STACKS)
    layer = min(int_field(request, "layer", 0, 63), model.config.n_layers - 1)
    quantities = QUANTITIES[model.config.cell]
    # The page may have selected the quantity for a model with another cell.
    requested = text_field(request, "quantity", 2, "")
    quantity = requested if requested in quantities else next(iter(quantities))
    batch = subject.encode_text(source_text(request))
    recorded = record_gates(model, batch)[stack][layer]
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
        **answer_fields(subject, batch, subject.generated_tokens(batch)),
    }


VIEWS = {"gates": gates}
