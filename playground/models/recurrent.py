"""Recurrent encoder-decoders, the sequence-to-sequence models before the transformer.

D is the size of the hidden state; G is the gates of a cell times D.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from .config import RecurrentConfig
from .rnn_cells import CELLS, RNNCellBase, State


class AdditiveAttention(nn.Module):
    """Attention scores from a small network, v tanh(W query + U memory).

    From Bahdanau et al. 2015, section 3.1 and appendix A.1.2.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query_proj = nn.Linear(d_model, d_model)
        self.memory_proj = nn.Linear(d_model, d_model, bias=False)
        self.score_proj = nn.Linear(d_model, 1, bias=False)

    def forward(
        self,
        query_BD: Tensor,
        memory_BSD: Tensor,
        projected_memory_BSD: Tensor,
        attn_mask_BS: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of the memory (BD) and the attention weights (BS) of one query.

        `projected_memory_BSD` is U memory, the same for every query.
        """
        hidden_BSD = (self.query_proj(query_BD)[:, None] + projected_memory_BSD).tanh()
        score_BS = self.score_proj(hidden_BSD)[..., 0]
        weights_BS = score_BS.masked_fill(~attn_mask_BS, -torch.inf).softmax(-1)
        return (weights_BS[:, None] @ memory_BSD)[:, 0], weights_BS


class Recurrent(nn.Module):
    """A recurrent encoder whose last states initialize the decoder (Sutskever et al. 2014).

    `attention` selects the decoder's attention to the encoder's hidden states:

    none       no attention: only the last states carry the source
    additive   before each step the top layer's state attends to the source, and the result becomes
               a part of the step's input (Bahdanau et al. 2015; their encoder reads in both
               directions, this one forwards)
    dot        after each step the state itself is the query, and the output layer gets
               tanh(W [context; state]) (Luong et al. 2015, equation 5 with the dot score, without
               their input feeding)
    """

    attention: AdditiveAttention

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        d, cell_class = config.d_model, CELLS[config.cell]
        self.source_token_embedding = nn.Embedding(config.source_vocab_size, d)
        self.target_token_embedding = nn.Embedding(config.target_vocab_size, d)
        self.encoder_cells = nn.ModuleList(cell_class(d, d) for _ in range(config.n_layers))
        first_input_size = 2 * d if config.attention == "additive" else d
        self.decoder_cells = nn.ModuleList(
            cell_class(d if layer else first_input_size, d) for layer in range(config.n_layers)
        )
        self.dropout = nn.Dropout(config.dropout)
        if config.attention == "additive":
            self.attention = AdditiveAttention(d)
        elif config.attention == "dot":
            self.context_proj = nn.Linear(2 * d, d)
        self.output_proj = nn.Linear(d, config.target_vocab_size)

    def forward(
        self, source_BS: Tensor, target_BT: Tensor, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BTV) of the token that follows each target position.

        The attention weights (B1TS), if there are any, are appended to `weights`.
        """
        memory_BSD, states = self.encode(source_BS)
        logits_BTV, _, weights_BTS = self.decode(target_BT, memory_BSD, states, source_BS)
        if weights is not None and weights_BTS is not None:
            weights.append(weights_BTS[:, None])
        return logits_BTV

    def encode(self, source_BS: Tensor) -> tuple[Tensor, list[State]]:
        """Return the top layer's hidden states (BSD) and each layer's state after the last token.

        Padding changes no state.
        """
        x_BSD = self.dropout(self.source_token_embedding(source_BS))
        states = [self.initial_state(len(source_BS))] * self.config.n_layers
        return self._run_layers(self.encoder_cells, x_BSD, states, (source_BS != 0)[..., None])

    def initial_state(self, batch_size: int) -> State:
        """Return the initial state of a cell: zeros."""
        zeros_BD = self.output_proj.weight.new_zeros(batch_size, self.config.d_model)
        return (zeros_BD,) * CELLS[self.config.cell].n_states

    def decode(
        self, target_BT: Tensor, memory_BSD: Tensor, states: list[State], source_BS: Tensor
    ) -> tuple[Tensor, list[State], Tensor | None]:
        """Return the logits (BTV), each layer's last state, and the attention weights (BTS).

        Without attention (`attention` "none") the weights are None.
        """
        x_BTD, attn_mask_BS = self.dropout(self.target_token_embedding(target_BT)), source_BS != 0
        if self.config.attention == "additive":
            hidden_BTD, states, weights_BTS = self._decode_with_input_attention(
                x_BTD, memory_BSD, states, attn_mask_BS
            )
            return self.output_proj(hidden_BTD), states, weights_BTS
        hidden_BTD, states = self._run_layers(self.decoder_cells, x_BTD, states)
        if self.config.attention == "none":
            return self.output_proj(hidden_BTD), states, None
        score_BTS = hidden_BTD @ memory_BSD.transpose(1, 2)
        weights_BTS = score_BTS.masked_fill(~attn_mask_BS[:, None], -torch.inf).softmax(-1)
        combined_BTD = torch.cat([weights_BTS @ memory_BSD, hidden_BTD], dim=-1)
        return self.output_proj(self.context_proj(combined_BTD).tanh()), states, weights_BTS

    def _run_layers(
        self,
        cells: nn.ModuleList,
        x_BPD: Tensor,
        states: list[State],
        is_token_BP1: Tensor | None = None,
    ) -> tuple[Tensor, list[State]]:
        """Run the layers one after the other, each over all positions.

        Returns the top layer's hidden states (BPD) and each layer's last state.
        """
        next_states = []
        for cell, state in zip(cast(Iterable[RNNCellBase], cells), states, strict=True):
            hidden = []
            for p, x_gates_BG in enumerate(cell.input_proj(x_BPD).unbind(1)):
                new_state = cell(x_gates_BG, state)
                if is_token_BP1 is not None:
                    new_state = tuple(
                        torch.where(is_token_BP1[:, p], new, old)
                        for new, old in zip(new_state, state, strict=True)
                    )
                state = new_state
                hidden.append(state[0])
            x_BPD = self.dropout(torch.stack(hidden, dim=1))
            next_states.append(state)
        return x_BPD, next_states

    def _decode_with_input_attention(
        self, x_BTD: Tensor, memory_BSD: Tensor, states: list[State], attn_mask_BS: Tensor
    ) -> tuple[Tensor, list[State], Tensor]:
        """Decode step by step: each input contains the attention output of the previous state."""
        memory_proj_BSD = self.attention.memory_proj(memory_BSD)
        hidden, weights = [], []
        for x_BD in x_BTD.unbind(1):
            context_BD, weights_BS = self.attention(
                states[-1][0], memory_BSD, memory_proj_BSD, attn_mask_BS
            )
            x_B1D = torch.cat([x_BD, context_BD], dim=-1)[:, None]
            hidden_B1D, states = self._run_layers(self.decoder_cells, x_B1D, states)
            hidden.append(hidden_B1D)
            weights.append(weights_BS)
        return torch.cat(hidden, dim=1), states, torch.stack(weights, dim=1)
