"""The responses about models and jobs, and those that several routes share.

`python -m scripts.write_response_types` writes all responses as types of the page's scripts.
"""

from typing import Any, Literal, NotRequired, TypedDict

RunStatus = Literal[
    "waiting", "starting", "training", "paused", "stopping", "stopped", "done", "failed"
]


class ErrorResponse(TypedDict):
    """A failed request, which may have further fields.

    `retryable` means that the same request may succeed soon.
    """

    error: str
    retryable: NotRequired[bool]
    field: NotRequired[str]  # the setting that the error is about
    code: NotRequired[str]  # the kind of an error that the page handles in a special way


class LengthScore(TypedDict):
    length: int
    n: int
    exact_match: float | None
    token_accuracy: float | None
    available: int | None


class Scores(TypedDict):
    n: int
    exact_match: float
    token_accuracy: float
    by_length: list[LengthScore]


class RunSummary(TypedDict):
    subject: str
    name: str
    status: RunStatus
    task: str
    shape: tuple[int, int, int]  # the numbers of layers and heads, and the width
    parameters: int
    step: int
    max_steps: int
    best: float | None
    curve: list[tuple[int, float]]  # the exact match of some steps
    eval_size: int
    created: float
    origin: str
    deleted: bool
    evicted: Literal["", "thinned", "emptied"]
    queue_position: int | None


class CheckpointSummary(TypedDict):
    subject: str
    name: str
    about: str
    task: str
    parameters: int
    best: float | None


class RunList(TypedDict):
    runs: list[RunSummary]
    checkpoints: list[CheckpointSummary]
    storage_message: str
    now: float  # the time of the server in seconds
    slots: int
    device: str
    note: str


class Points(TypedDict):
    """Metrics by step. With `whole` they replace the points of the page."""

    whole: bool
    count: int
    steps: list[int]
    loss: list[float]
    learning_rate: list[float]
    grad_norm: list[float]
    # step, exact match, token accuracy, number of sequences and held-out loss of each evaluation
    evaluations: list[tuple[int, float, float, int, float | None]]


class LatestPoint(TypedDict):
    step: int
    loss: NotRequired[float]
    learning_rate: NotRequired[float]
    grad_norm: NotRequired[float]
    seconds: NotRequired[float]
    steps_per_second: NotRequired[float]


class Sample(TypedDict):
    source: list[str]
    target: list[str]
    prediction: list[str]


class TargetPrediction(TypedDict):
    target: list[str]
    predicted: list[str]
    probability: list[int]


class Snapshot(TypedDict):
    """What the live view draws of one step; weights and probabilities are in thousandths."""

    step: int
    samples: list[Sample]
    # the weights by kind of attention, layer, head and cell
    attention: dict[str, list[list[list[int]]]]
    probe: TargetPrediction | None
    contributions: dict[str, float]


class ProbeInfo(TypedDict):
    source: list[str]
    # the labels of the rows and the columns by kind of attention
    axes: dict[str, tuple[list[str], list[str]]]
    accepts: str
    default_input: str
    parameters: int
    architecture: str
    n_layers: int
    component_parameters: dict[str, int]
    in_browser: bool  # whether the engine of the page runs the model


class ModelPoll(TypedDict):
    """The response of `runs/poll` for a model; null stands for what the page has already."""

    status: RunStatus | Literal["checkpoint"]
    message: str
    is_owner: bool
    # what the user may do with the model; each right includes those before it
    right: Literal["watch", "use", "reuse", "own"]
    private: str  # why viewers see no examples; empty if they may
    name: str
    step: int
    max_steps: int
    parameters: int
    device: str
    series_id: int
    points: Points
    latest: LatestPoint
    weight_steps: list[int]
    snapshot_version: int
    snapshot: Snapshot | None
    probe_info: ProbeInfo | None
    scores: Scores | None
    changes: list[tuple[int, str, Any]] | None
    checkpoint_version: int
    has_worker: bool
    speed: float
    learning_rate: float


class RunPoll(ModelPoll):
    changes_version: int
    branched_from_step: int | None
    queue_position: int | None
    time_left: tuple[float, str] | None  # the seconds of training that are left, and the reason


class NotFoundPoll(TypedDict):
    """The response of `runs/poll` without a model; its `message` may name the reason."""

    status: Literal["not-found"]
    message: str
    series_id: int
    points: Points
    weight_steps: list[int]
    step: int
    retryable: NotRequired[bool]


class Example(TypedDict):
    """Tokens of an input and of the right output. Both end with EOS."""

    source: list[int]
    labels: list[int]


class ModelDescription(TypedDict):
    """The response of `runs/model`: what the engine needs to run the model, beside its weights."""

    architecture: str
    model: dict[str, Any]
    task: str
    symbols: list[str]
    n_symbols: int  # the number of digits that the task counts with
    max_tokens: int
    lengths: tuple[int, int]  # the shortest and the longest input of training
    examples: list[Example]  # held-out sequences; none for viewers of a model on private data


class RunCheckpoint(TypedDict):
    name: str
    step: int
    bytes: int
    written: float
    exact_match: float | None
    is_pinned: bool
    resumable: bool


class DamagedRecord(TypedDict):
    kind: str
    name: str
    reason: str  # a sentence
    bytes: int


class RunDetails(TypedDict):
    """The response of `runs/details`; viewers get no checkpoints and no share link."""

    settings: dict[str, Any]
    optimizer_groups: str  # which optimizer trains which weights, in words
    result: str  # what it learned, in a sentence; empty before the first score
    command: str | None  # trains it again on another computer
    changes: NotRequired[list[tuple[int, str, Any]]]
    name: NotRequired[str]
    created: NotRequired[float]
    branched_from: NotRequired[int | None]
    share_id: NotRequired[str]
    viewers_may_use: NotRequired[bool]  # whether viewers may see examples and use the model
    checkpoints: NotRequired[list[RunCheckpoint]]
    damaged: NotRequired[list[DamagedRecord]]


class JobPoll(TypedDict):
    status: Literal["waiting", "working", "done", "failed", "cancelled"]
    kind: str
    message: str
    done: float
    total: float
    unit: str
    rows: list[dict[str, Any]]
    cursor: int
    partial: dict[str, Any]  # what a job that works has so far
    result: Any
    code: str  # of the error, if the page handles it in a special way
    retryable: bool
    queue_position: int


class Done(TypedDict):
    """The response of an action without a result."""


class ModelChange(TypedDict):
    """The response of `runs/action`: the model that the page opens, or a link to download it."""

    subject: NotRequired[str]
    ticket: NotRequired[str]


class SnapshotAtStep(TypedDict):
    """The response of `runs/snapshot`; a recorded checkpoint has no `probe_info`."""

    snapshot: Snapshot
    probe_info: NotRequired[ProbeInfo]


class ForwardPass(TypedDict):
    source: list[str]
    axes: dict[str, tuple[list[str], list[str]]]
    attention: dict[str, list[list[list[int]]]]
    probe: TargetPrediction
    contributions: dict[str, float]


class Prediction(TypedDict):
    prediction: list[str]
    target: list[str] | None
    correct: bool | None
    note: str
    step: int
    forward_pass: NotRequired[ForwardPass | None]


class OverlaidCurve(Points):
    subject: str
    name: str
    status: RunStatus
    step: int


class CurveList(TypedDict):
    curves: list[OverlaidCurve]


class SubmittedJob(TypedDict):
    job: str
