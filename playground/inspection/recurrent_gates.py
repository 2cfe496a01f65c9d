"""Record the gates and states of the cells of a recurrent model at every position.

Shapes: B batch, G gates times D, P positions, D hidden state.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from playground.models.recurrent import Recurrent
from playground.models.rnn_cells import RNNCellBase
from playground.tasks.task import Batch

STACKS = ("encoder", "decoder")
STATE_NAMES = ("h", "c")  # the hidden state, and the memory cell of an LSTM
Call = dict[str, Tensor]  # the gates and the next states of one position (D), by name


@torch.no_grad()
def record_gates(model: Recurrent, batch: Batch) -> dict[str, list[dict[str, Tensor]]]:
    """Return the gates and next states (PD) by name, for each layer of each stack.

    The batch has one example. The decoder input is that of teacher forcing.
    """
    calls: dict[str, list[list[Call]]] = {stack: [] for stack in STACKS}
    handles = []
    for stack in STACKS:
        for cell in cast(Iterable[RNNCellBase], getattr(model, f"{stack}_cells")):
            calls[stack].append([])
            handles.append(cell.register_forward_hook(_recorder(calls[stack][-1])))
    try:
        model(batch.source_BS, batch.decoder_input_BT)
    finally:
        for handle in handles:
            handle.remove()
    return {
        stack: [
            {name: torch.stack([call[name] for call in layer]) for name in layer[0]}
            for layer in layers
        ]
        for stack, layers in calls.items()
    }


def _recorder(calls: list[Call]) -> Callable[[nn.Module, Any, Any], None]:
    """Return a forward hook that appends the gates and the next states of each call."""

    def record(cell: nn.Module, inputs: Any, states: Any) -> None:
        x_gates_BG, (hidden_BD, *_) = inputs
        gates = cast(RNNCellBase, cell).gates(x_gates_BG, hidden_BD)
        next_states = dict(zip(STATE_NAMES, states, strict=False))
        calls.append({name: each_BD[0] for name, each_BD in (gates | next_states).items()})

    return record
