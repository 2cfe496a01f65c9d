"""Muon: momentum whose updates are orthogonal matrices (Jordan et al. 2024).

`torch.optim.Muon` computes the same updates, in bfloat16 and one matrix at a time. That is slower
for many small matrices.

Letters of shapes: N matrices of R rows and C columns, R at most C.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan's polynomial
ITERATIONS = 5
EPS = 1e-7  # as in torch.optim.Muon; it prevents a division by zero
RMS = 0.2  # of an update at learning rate 1, as that of Adam (Liu et al. 2025, section 2.2)


def orthogonalize(matrix_NRC: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values near 1 (NRC).

    It runs five Newton-Schulz iterations. Singular values of at least 0.003 of the norm of the
    matrix become 0.68 to 1.21, smaller ones stay smaller. This suffices for an update.
    """
    a, b, c = COEFFICIENTS
    x_NRC = matrix_NRC / torch.linalg.matrix_norm(matrix_NRC, keepdim=True).clamp(min=EPS)
    for _ in range(ITERATIONS):
        gram_NRR = x_NRC @ x_NRC.mT
        gram_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c)
        x_NRC = torch.baddbmm(x_NRC, gram_NRR, x_NRC, beta=a)
    return x_NRC


class Muon(torch.optim.Optimizer):
    """Muon for matrices, and AdamW for all other weights.

    `matrices` maps each matrix to the number of blocks that are orthogonalized separately, and to
    the axis along which they lie: (3, 0) if the rows are those of queries, keys and values.
    `groups` are the parameter groups of AdamW.
    """

    def __init__(
        self,
        matrices: Mapping[nn.Parameter, tuple[int, int]],
        groups: list[dict[str, Any]],
        lr: float,
        lr_ratio: float,
        momentum: float,
        weight_decay: float,
        **adam: Any,
    ) -> None:
        group = {"params": list(matrices), "lr_scale": lr_ratio, "momentum": momentum}
        super().__init__([group, *groups], {"lr": lr, "weight_decay": weight_decay})
        # AdamW uses the same groups and the same state.
        self.adam = torch.optim.AdamW(
            self.param_groups[1:], lr=lr, weight_decay=weight_decay, fused=True, **adam
        )
        self.adam.state = self.state
        self._blocks: dict[torch.Size, list[tuple[nn.Parameter, int, int, int]]] = {}
        for weight, (n_blocks, axis) in matrices.items():
            self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
            for i in range(n_blocks):
                shape = _wide(weight.chunk(n_blocks, axis)[i]).shape
                self._blocks.setdefault(shape, []).append((weight, n_blocks, axis, i))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all weights."""
        self.adam.step()
        group = self.param_groups[0]
        for shape, blocks in self._blocks.items():
            weights, gradients, buffers = (
                [_wide(tensor_of(each).chunk(n, axis)[i]) for each, n, axis, i in blocks]
                for tensor_of in (lambda weight: weight, _grad, self._momentum)
            )
            gradient_NRC, momentum_NRC = torch.stack(gradients), torch.stack(buffers)
            momentum_NRC.lerp_(gradient_NRC, 1 - group["momentum"])
            update_NRC = orthogonalize(gradient_NRC.lerp(momentum_NRC, group["momentum"]))
            rate = update_NRC.new_tensor(group["lr"])  # in single precision
            torch._foreach_copy_(buffers, list(momentum_NRC.unbind()))
            torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])
            update_NRC *= rate * RMS * math.sqrt(shape[1])
            torch._foreach_sub_(weights, list(update_NRC.unbind()))

    def _momentum(self, weight: nn.Parameter) -> Tensor:
        momentum: Tensor = self.state[weight]["momentum_buffer"]
        return momentum


def _wide(matrix: Tensor) -> Tensor:
    """Return the matrix, or its transpose if it has more rows than columns."""
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix


def _grad(weight: nn.Parameter) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
