"""One stage of a trace: a tensor with its formula, its line of code, and the origin of each number.

Shapes: R rows of a table, N its columns, K the terms of a dot product. The stages have S source,
T target, Q query, M key, H head, K head size, D d_model, F d_ff and V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .source_lines import STAGE_LINES, Place, SourceLine, find_source_line


@dataclass(frozen=True)
class DotProduct:
    """value = sum(left * right) / root + bias.

    For an attention score, `query` and `key` are its positions, and `attended` is False if the mask
    blocks it. With RoPE, both vectors are already rotated.
    """

    left_K: Tensor
    right_K: Tensor
    names: tuple[str, str]
    value: float
    root: float | None = None
    bias: float | None = None
    query: int | None = None
    key: int | None = None
    attended: bool | None = None


@dataclass(frozen=True)
class WeightedSum:
    """result_N = sum over the rows of terms_RN; the value is one number of it.

    Without `names`, the rows are the keys of the attention, whose weights are `weights_R`.
    """

    terms_RN: Tensor
    result_N: Tensor
    names: tuple[str, ...] = ()
    weights_R: Tensor | None = None


@dataclass(frozen=True)
class Equation:
    """A value as a formula, with the values of its variables.

    `score` is the score whose softmax this is, if it is one.
    """

    formula: str
    variables: dict[str, float]
    value: float
    score: DotProduct | None = None


Norm = nn.LayerNorm | nn.RMSNorm
CellOrigin = DotProduct | WeightedSum | Equation
# The computation of the number in this head, row and column of a stage.
Explain = Callable[[int, int, int], CellOrigin]


@dataclass(frozen=True)
class TraceStage:
    """One tensor of the forward pass.

    `shape` has one letter per dimension; `block` is the part of the model.
    `find_origin` computes what `explain` returns. `line` is the place of its line of code, or the
    key of it in `STAGE_LINES`, if that is not the name. `contribution` is the size of a sublayer's
    output relative to the residual stream, for the sum of the two.
    """

    block: str
    name: str
    formula: str
    shape: str
    tensor: Tensor
    find_origin: Explain = field(repr=False, compare=False)
    line: str | Place = ""
    contribution: float | None = None

    @torch.no_grad()
    def explain(self, head: int, row: int, column: int) -> CellOrigin:
        """Return the computation of one number from earlier stages, or raise IndexError."""
        return self.find_origin(head, row, column)

    @property
    def code(self) -> SourceLine:
        """Return the line of code that computes the stage."""
        line = self.line or self.name
        return find_source_line(*(STAGE_LINES[line] if isinstance(line, str) else line))

    @property
    def size(self) -> str:
        """Return the shape in letters and numbers: "H Q M = 4 × 6 × 6"."""
        return f"{' '.join(self.shape)} = {' × '.join(map(str, self.tensor.shape))}"

    @property
    def has_heads(self) -> bool:
        return self.shape.startswith("H")

    @property
    def key(self) -> str:
        """Return the name that identifies the stage: "block/name"."""
        return f"{self.block}/{self.name}"


def explain_equation(
    formula: str, tensor: Tensor, variables: Callable[[int, int, int], dict[str, float]]
) -> Explain:
    """Explain each number of `tensor` by a formula with these variables."""

    def explain(head: int, row: int, column: int) -> Equation:
        table = tensor[head] if tensor.dim() == 3 else tensor
        return Equation(formula, variables(head, row, column), float(table[row, column]))

    return explain


def explain_linear(layer: nn.Linear, input_XD: Tensor, output: Tensor, n_heads: int = 0) -> Explain:
    """Explain an output of a linear layer: its input times the weight row of that output.

    With `n_heads`, the layer has so many heads and `output` is HXK. Several query heads may share
    one head of keys or values.
    """

    def explain(head: int, row: int, column: int) -> DotProduct:
        index, table = column, output
        if n_heads:
            index, table = head * n_heads // len(output) * output.shape[-1] + column, output[head]
        return DotProduct(
            input_XD[row],
            layer.weight[index],
            ("input", "weights"),
            float(table[row, column]),
            bias=None if layer.bias is None else float(layer.bias[index]),
        )

    return explain


def explain_norm(norm: Norm, input_XD: Tensor, output_XD: Tensor) -> Explain:
    """Explain an output of layer norm or RMSNorm."""
    eps = norm.eps or 0.0

    def variables(_head: int, row: int, column: int) -> dict[str, float]:
        input_D, weight = input_XD[row], {"weight, learned": float(norm.weight[column])}
        x = {"x": float(input_D[column])}
        if isinstance(norm, nn.RMSNorm):
            root_mean_square = float((input_D.pow(2).mean() + eps).sqrt())
            return x | {"root mean square": root_mean_square} | weight
        deviation = float((input_D.var(unbiased=False) + eps).sqrt())
        moments = {
            "mean of the vector": float(input_D.mean()),
            "standard deviation of the vector": deviation,
        }
        bias = {} if norm.bias is None else {"bias, learned": float(norm.bias[column])}
        return x | moments | weight | bias

    formula = "x / RMS · weight"
    if isinstance(norm, nn.LayerNorm):
        formula = "(x − mean) / deviation · weight" + ("" if norm.bias is None else " + bias")
    return explain_equation(formula, output_XD, variables)


def explain_softmax(tensor: Tensor, logits_XN: Tensor, name: str, total: str) -> Explain:
    """Explain a probability: the exponential of one score, and the sum of all exponentials."""

    def variables(_head: int, row: int, column: int) -> dict[str, float]:
        exp_N = (logits_XN[row] - logits_XN[row].max()).exp()
        return {
            f"exp({name} − maximum of the row)": float(exp_N[column]),
            f"sum of the exponentials over {total}": float(exp_N.sum()),
        }

    return explain_equation(f"exp({name} − maximum) / sum", tensor, variables)
