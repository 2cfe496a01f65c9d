"""Recurrent encoder-decoders, the sequence-to-sequence models before the transformer.

D is the size of the hidden state; G is the gates of a cell times D.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from .rnn_cells import CELLS, RNNCellBase, State
from .variant_configs import RecurrentConfig


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
        is_token_BS1 = (source_BS != 0)[..., None]
        states = []
        for cell in cast(Iterable[RNNCellBase], self.encoder_cells):
            state, hidden = self.initial_state(len(source_BS)), []
            for x_gates_BG, is_token_B1 in zip(
                cell.input_proj(x_BSD).unbind(1), is_token_BS1.unbind(1), strict=True
            ):
                state = tuple(
                    torch.where(is_token_B1, new, old)
                    for new, old in zip(cell(x_gates_BG, state), state, strict=True)
                )
                hidden.append(state[0])
            x_BSD = self.dropout(torch.stack(hidden, dim=1))
            states.append(state)
        return x_BSD, states

    def initial_state(self, batch_size: int) -> State:
        """Return the initial state of a cell: zeros."""
        return (self.output_proj.weight.new_zeros(batch_size, self.config.d_model),) * CELLS[
            self.config.cell
        ].n_states

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
        hidden_BTD, states = self._run_layers(x_BTD, states)
        if self.config.attention == "none":
            return self.output_proj(hidden_BTD), states, None
        score_BTS = hidden_BTD @ memory_BSD.transpose(1, 2)
        weights_BTS = score_BTS.masked_fill(~attn_mask_BS[:, None], -torch.inf).softmax(-1)
        combined_BTD = self.context_proj(
            torch.cat([weights_BTS @ memory_BSD, hidden_BTD], dim=-1)
        ).tanh()
        return self.output_proj(combined_BTD), states, weights_BTS

    def _run_layers(self, x_BTD: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Run the decoder's layers one after the other, each over the whole target."""
        next_states = []
        for cell, state in zip(
            cast(Iterable[RNNCellBase], self.decoder_cells), states, strict=True
        ):
            hidden = []
            for x_gates_BG in cell.input_proj(x_BTD).unbind(1):
                state = cell(x_gates_BG, state)
                hidden.append(state[0])
            x_BTD = self.dropout(torch.stack(hidden, dim=1))
            next_states.append(state)
        return x_BTD, next_states

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
            x_B1D, states = self._run_layers(torch.cat([x_BD, context_BD], dim=-1)[:, None], states)
            hidden.append(x_B1D)
            weights.append(weights_BS)
        return torch.cat(hidden, dim=1), states, torch.stack(weights, dim=1)
