"""Token and position embeddings (Vaswani et al. 2017, sections 3.4 and 3.5).

`position_encoding.py` has the encodings that act inside self-attention.
"""

import math

import torch
from torch import Tensor, nn

from .config import StackConfig


def build_token_embedding(vocab_size: int, d_model: int) -> nn.Embedding:
    """Build a table of token embeddings with standard deviation d_model^-0.5."""
    embedding = nn.Embedding(vocab_size, d_model)
    nn.init.normal_(embedding.weight, std=d_model**-0.5)
    return embedding


def build_output_layer(config: StackConfig, token_embedding: nn.Embedding) -> nn.Linear:
    """Build the linear layer that scores every token; a tied one uses the embeddings as weights."""
    output_proj = nn.Linear(config.d_model, config.target_vocab_size, bias=config.has_output_bias)
    nn.init.xavier_uniform_(output_proj.weight)
    if config.tie_output_embeddings:
        output_proj.weight = token_embedding.weight
    return output_proj


def sinusoidal_positions(n_positions: int, d_model: int) -> Tensor:
    """Return the paper's sine waves (PD).

    Even dimensions are sines, odd ones cosines, with wavelengths from 2 pi to 10000 * 2 pi. The
    rates 10000^(-2i/D) are computed in log space, exp(-2i/D * ln 10000), without large powers.
    """
    rate_d = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    angle_Pd = torch.arange(n_positions)[:, None] * rate_d
    return torch.stack([angle_Pd.sin(), angle_Pd.cos()], dim=-1).flatten(1)


class InputEmbedding(nn.Module):
    """Token embeddings, times sqrt(d_model) if scaled, plus position embeddings, then dropout.

    Token embeddings start with a standard deviation of d_model^-0.5, so they are N(0, 1) after
    scaling. Learned position embeddings start at N(0, 1) as well: they need the same scale as token
    embeddings, or attention cannot pick them up.
    """

    position_embedding: Tensor | None  # PD

    def __init__(
        self, config: StackConfig, token_embedding: nn.Embedding, side: str = "target"
    ) -> None:
        super().__init__()
        self.token_embedding = token_embedding
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.dropout = nn.Dropout(config.dropout)
        self.position_type, self.side = config.position_type, side  # "source" or "target"
        self.n_positions, self.sinusoidal_scale = config.n_positions, config.sinusoidal_scale
        # Randomized positions have more vectors than the longest input has positions.
        shape_PD = config.n_position_vectors, config.d_model
        if not config.n_position_vectors:
            self.position_embedding = None
        elif config.position_type == "sinusoidal":
            self.register_buffer("position_embedding", torch.empty(shape_PD), persistent=False)
        else:
            self.position_embedding = nn.Parameter(torch.empty(shape_PD))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the position embeddings."""
        table_PD = self.position_embedding
        if isinstance(table_PD, nn.Parameter):
            nn.init.normal_(table_PD)
        elif table_PD is not None:
            table_PD.copy_(self.sinusoidal_scale * sinusoidal_positions(*table_PD.shape))

    def forward(
        self, tokens_BS: Tensor, first_position: int = 0, is_token_BM: Tensor | None = None
    ) -> Tensor:
        """Return the vectors (BSD) of tokens at `first_position`, `first_position` + 1, ...

        Sequences may begin with padding, so that all of them end in the same column. Then
        `is_token_BM` marks the tokens among all columns, of which tokens_BS are the last ones, and
        positions count from the first token. Raises ValueError for too many positions.
        """
        n_needed = first_position + tokens_BS.shape[1]
        if n_needed > self.n_positions:
            needs = f"the sequence needs {n_needed} positions"
            raise ValueError(f"{needs}, but the model has {self.n_positions}; shorten it")
        x_BSD = self.token_embedding(tokens_BS) * self.scale
        positions_SD = self.position_vectors(tokens_BS, first_position, is_token_BM)
        if positions_SD is not None:
            x_BSD = x_BSD + positions_SD
        return self.dropout(x_BSD)

    def position_vectors(
        self, tokens_BS: Tensor, first_position: int = 0, is_token_BM: Tensor | None = None
    ) -> Tensor | None:
        """Return the position vectors: SD, BSD if each sequence has its own, or None."""
        if self.position_embedding is None:
            return None
        return self.position_embedding[self.position_ids(tokens_BS, first_position, is_token_BM)]

    def position_ids(
        self, tokens_BS: Tensor, first_position: int = 0, is_token_BM: Tensor | None = None
    ) -> Tensor | slice:
        """Return the tokens' rows of `position_embedding`: S for all sequences, or BS."""
        if is_token_BM is not None:
            return positions_from_first_token(is_token_BM)[:, -tokens_BS.shape[1] :]
        if self.position_type == "learned-from-end" and self.side == "source":
            return positions_from_end(tokens_BS)
        if self.position_type == "randomized" and self.position_embedding is not None:
            ranges = self.n_positions, len(self.position_embedding)
            if self.training:
                return sample_random_positions(tokens_BS, *ranges)
            return evenly_spaced_positions(tokens_BS, first_position, *ranges)
        return slice(first_position, first_position + tokens_BS.shape[1])


def positions_from_first_token(is_token_BM: Tensor) -> Tensor:
    """Return the position of each column (BM), counted from the first token; padding has 0."""
    return (is_token_BM.cumsum(1) - 1).clamp(min=0)


def positions_from_end(tokens_BS: Tensor) -> Tensor:
    """Return the number of tokens behind each token (BS), without padding (token 0).

    So the EOS of a source has position 0, whatever the length. This is for sources only: during
    generation the length of the target is not known yet, so targets count from their start.
    """
    is_token_BS = (tokens_BS != 0).long()
    return (is_token_BS.sum(1, keepdim=True) - is_token_BS.cumsum(1)).clamp(min=0)


def sample_random_positions(tokens_BS: Tensor, n_positions: int, n_random_positions: int) -> Tensor:
    """Sample increasing random positions (BS) for training (Ruoss et al. 2023, section 3).

    A model that trains on short sequences only still trains every position vector, and learns to
    use their order. The paper samples as many positions as there are tokens. Here a sequence gets
    the first of as many as a random total length up to `n_positions`, so that the gaps in training
    match those at inference.
    """
    (batch_size, n_tokens), device = tokens_BS.shape, tokens_BS.device
    total_length = torch.randint(n_tokens, n_positions + 1, (), device=device)
    noise_BP = torch.rand(batch_size, n_random_positions, device=device)
    rank_BP = noise_BP.argsort(descending=True).argsort()
    position_P = torch.arange(n_random_positions, device=device)
    # First the `total_length` positions of lowest rank in order, then all others. Sorting keeps the
    # shape independent of the random length.
    is_sampled_BP = rank_BP < total_length
    order_BP = torch.where(is_sampled_BP, position_P, n_random_positions + position_P)
    return order_BP.sort().values[:, :n_tokens]


def evenly_spaced_positions(
    tokens_BS: Tensor, first_position: int, n_positions: int, n_random_positions: int
) -> Tensor:
    """Return evenly spaced positions (S) for inference.

    They are spaced as if the sequence had the maximum length. A token has the same position
    whatever the length, so padding and generation step by step change nothing. (The paper samples
    at inference, too.)
    """
    end = first_position + tokens_BS.shape[1]
    position_S = torch.arange(first_position, end, device=tokens_BS.device)
    return position_S * n_random_positions // n_positions
