"""The views of the Inspect tab, as responses of the route `inspect/view`."""

from typing import Any, Literal, NotRequired, TypedDict

Number = float | None  # null for one that is not finite or is masked
Row = dict[str, Any]


class InspectView(TypedDict):
    step: int
    default_input: NotRequired[str]  # an example input in the symbols of the model


class AnswerView(InspectView):
    """The model's output for the input; `target` is null if it is unknown."""

    prediction: list[str]
    target: list[str] | None
    note: str
    views: list[str]  # the views that exist for the architecture of the model


class AttentionView(AnswerView):
    kind: Literal["encoder", "decoder", "cross"]
    kinds: list[str]
    layers: int
    heads: int
    rows: list[str]
    columns: list[str]
    weights: str  # thousandths by layer, head, row and column: 16-bit integers in base64
    possible: list[list[int]]
    architecture: str


class HeadsView(InspectView):
    sequences: int
    lengths: list[int]
    patterns: dict[str, str]
    heads: list[Row]


class AblationView(InspectView):
    method: Literal["mean", "zero", "resample"]
    set: Literal["single", "groups", "keep"]
    sequences: int
    is_reduced: bool
    lengths: list[int]
    baseline: dict[str, Number]
    rows: list[Row]


class OutputView(AnswerView):
    source: list[str]
    vocabulary: list[str]


class LayerTable(TypedDict):
    """The fraction recovered, and the fraction lost, by layer and position of one side."""

    side: Literal["source", "target"]
    rows: list[str]
    restored: list[list[Number]]
    lost: list[list[Number]]


class PatchView(InspectView):
    source: list[str]
    corrupted_source: list[str]
    source_position: int
    replacement: str
    position: int
    clean_token: str
    corrupted_token: str
    clean_logit_diff: Number
    corrupted_logit_diff: Number
    heads: list[Row]
    pairs: int
    layers: list[LayerTable]


class LensView(AnswerView):
    layers: list[str]
    decoder_input: list[str]
    labels: list[str]
    vocabulary: list[str]
    candidates: list[list[list[tuple[str, Number]]]]
    target_probability: list[list[Number]]


class ContributionsView(AnswerView):
    """The view `contributions`; `labels` are the target, `vocabulary` the tokens to choose from."""

    labels: list[str]
    vocabulary: list[str]
    position: int
    token: str
    baseline_token: str | None  # the token whose logit is subtracted, or null
    runner_up: str
    contributions: list[Row]
    sum: Number
    logit: Number


class TraceView(AnswerView):
    stages: list[Row]
    chosen: Row


class AttentionScoresView(InspectView):
    """The view `attention-scores`: how one query of a head gets its weights."""

    query: list[Number]
    keys: list[list[Number]]
    products: list[Number]  # the dot product of the query and each key
    root: float  # the square root of the size of a head
    bias: list[Number] | None  # the bias of the position encoding, if there is one
    scores: list[Number]
    weights: list[Number]


class EmbeddingsView(AnswerView):
    side: Literal["source", "target"]
    positions: Row
    tokens: list[str]
    token: str
    nearest: list[tuple[str, Number]]
    map: Row


class ParametersView(AnswerView):
    components: list[Row]
    total: int


class GatesView(AnswerView):
    cell: str
    stack: Literal["encoder", "decoder"]
    layer: int
    layers: int
    tokens: list[str]
    quantity: str
    is_gate: bool
    quantities: list[Row]
    values: list[list[Number]]
    of: list[float]


View = (
    AttentionView
    | HeadsView
    | AblationView
    | OutputView
    | PatchView
    | LensView
    | ContributionsView
    | TraceView
    | AttentionScoresView
    | EmbeddingsView
    | ParametersView
    | GatesView
)
