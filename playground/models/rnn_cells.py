"""Recurrent cells: plain RNN, LSTM and GRU.

New meaning of a letter in shapes: G the gates of a cell times D. D is the size of the hidden state.
"""

from typing import ClassVar

from torch import Tensor, nn

from .config import GATES_PER_CELL

State = tuple[Tensor, ...]  # the state of a cell; the first tensor is its hidden state (BD)


class RNNCellBase(nn.Module):
    """One step of a recurrent network: from an input and a state to the next state.

    Subclasses define the step. `input_proj` may be computed for all positions at once, because it
    does not depend on the state.
    """

    name: ClassVar[str]
    n_states: ClassVar[int] = 1

    def __init__(self, input_size: int, d_model: int) -> None:
        super().__init__()
        gates = GATES_PER_CELL[self.name]
        self.input_proj = nn.Linear(input_size, gates * d_model)
        self.hidden_proj = nn.Linear(d_model, gates * d_model)
        nn.init.xavier_uniform_(self.input_proj.weight)
        for weight in self.hidden_proj.weight.chunk(gates):
            # An orthogonal matrix keeps the norm of a vector over many steps (Saxe et al. 2014).
            nn.init.orthogonal_(weight)
        nn.init.zeros_(self.input_proj.bias)
        nn.init.zeros_(self.hidden_proj.bias)

    def forward(self, x_gates_BG: Tensor, state: State) -> State:
        """Return the next state; `x_gates_BG` is the input after `input_proj`."""
        raise NotImplementedError

    def gates(self, x_gates_BG: Tensor, hidden_BD: Tensor) -> dict[str, Tensor]:
        """Return the gates and the candidate of one step by name; a plain cell has none."""
        return {}


class RNNCell(RNNCellBase):
    """h' = tanh(W x + U h + b) (Elman 1990)."""

    name = "rnn"

    def forward(self, x_gates_BG: Tensor, state: State) -> State:
        return ((x_gates_BG + self.hidden_proj(state[0])).tanh(),)


class LSTMCell(RNNCellBase):
    """An LSTM: a memory cell c beside h, with input, forget and output gates.

    From Hochreiter and Schmidhuber 1997; the forget gate is from Gers et al. 2000.

    i, f, o = sigmoid(...), g = tanh(...), each of W x + U h + b
    c' = f * c + i * g
    h' = o * tanh(c')
    """

    name = "lstm"
    n_states = 2

    def __init__(self, input_size: int, d_model: int) -> None:
        super().__init__(input_size, d_model)
        # A forget gate that starts open keeps the memory (Jozefowicz et al. 2015).
        nn.init.ones_(self.input_proj.bias[d_model : 2 * d_model])

    def forward(self, x_gates_BG: Tensor, state: State) -> State:
        hidden_BD, memory_BD = state
        gates = self.gates(x_gates_BG, hidden_BD)
        memory_BD = gates["f"] * memory_BD + gates["i"] * gates["g"]
        return gates["o"] * memory_BD.tanh(), memory_BD

    def gates(self, x_gates_BG: Tensor, hidden_BD: Tensor) -> dict[str, Tensor]:
        i_BD, f_BD, g_BD, o_BD = (x_gates_BG + self.hidden_proj(hidden_BD)).chunk(4, dim=-1)
        return {"i": i_BD.sigmoid(), "f": f_BD.sigmoid(), "g": g_BD.tanh(), "o": o_BD.sigmoid()}


class GRUCell(RNNCellBase):
    """A GRU: reset and update gates on the hidden state itself (Cho et al. 2014).

    It equals PyTorch's GRU: the reset gate acts after the product with U. In Cho et al. it acts
    before, U (r * h), and z and 1 - z have swapped roles, as in many tutorials.

    r, z = sigmoid(W x + U h + b)
    n = tanh(W x + b + r * (U h + b))
    h' = (1 - z) * n + z * h
    """

    name = "gru"

    def forward(self, x_gates_BG: Tensor, state: State) -> State:
        (hidden_BD,) = state
        gates = self.gates(x_gates_BG, hidden_BD)
        return ((1 - gates["z"]) * gates["n"] + gates["z"] * hidden_BD,)

    def gates(self, x_gates_BG: Tensor, hidden_BD: Tensor) -> dict[str, Tensor]:
        x_r_BD, x_z_BD, x_n_BD = x_gates_BG.chunk(3, dim=-1)
        h_r_BD, h_z_BD, h_n_BD = self.hidden_proj(hidden_BD).chunk(3, dim=-1)
        r_BD, z_BD = (x_r_BD + h_r_BD).sigmoid(), (x_z_BD + h_z_BD).sigmoid()
        return {"r": r_BD, "z": z_BD, "n": (x_n_BD + r_BD * h_n_BD).tanh()}


CELLS: dict[str, type[RNNCellBase]] = {cell.name: cell for cell in (RNNCell, LSTMCell, GRUCell)}
