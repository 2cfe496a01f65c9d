"""The requests and responses of the routes of experiments."""

from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypedDict

from pydantic import Field

from playground.common.validation import parse
from playground.errors import UserError
from playground.experiments.analysis import VariantResult
from playground.experiments.backends.hf_jobs import Machine
from playground.experiments.length_generalization import SchemeResult
from playground.experiments.progress import Estimate
from playground.experiments.remote import Elsewhere
from playground.experiments.spec import GRID
from playground.models.config_fields import ConfigError
from playground.runs.access import Access, ModelRef, Right, require
from playground.runs.registry import Registry
from playground.server.hub_token import JobsAccess

from .base import MAX_TEXT_LENGTH, JsonObject, Name, OwnerRequest, RequestBody, Token

MAX_FORM_TEXT = 20_000  # characters
MAX_ROWS = 1000  # variants in the page
FormText = Annotated[str, Field(max_length=MAX_FORM_TEXT)]
Pair = Annotated[list[FormText], Field(min_length=2, max_length=2)]


class ExperimentForm(RequestBody):
    """The form of a new experiment; `grid` has pairs of a setting and its values as text."""

    grid: list[Pair] = Field(
        json_schema_extra={"accepts": "a list of settings to vary, each with its values"}
    )
    seeds: FormText
    name: FormText = ""
    base: Annotated[str, Field(max_length=MAX_TEXT_LENGTH)] | None = ""  # see PlanExperiment
    kind: Any = GRID  # the experiment validates it, and the two fields below
    times: Any = None
    n: Any = None


class PlanExperiment(OwnerRequest):
    """A prepared experiment by name, or the form of a new one.

    It trains on this server, or `on` a backend with its `options`.
    """

    question: Name | None = None
    form: JsonObject | None = None
    on: Literal["", "slurm", "hf-jobs"] = ""
    options: JsonObject = Field(default_factory=dict)
    token: Token = ""
    reads_disk: ClassVar = True

    def require(self, registry: Registry, right: Right) -> Access | None:
        """Return the model whose settings are the base of the form; None for the defaults.

        Raises ConfigError of the field `base`.
        """
        base = (self.form or {}).get("base")
        if not base:
            return None
        try:
            return require(registry, parse(ModelRef, {"subject": base, "owner": self.owner}), right)
        except UserError as error:
            raise ConfigError("base", str(error)) from None


class PollExperiments(OwnerRequest):
    """The open experiment, the version of its results that the page has, and what it draws.

    `drawn` has the labels of variants; without it, the best ones are drawn.
    """

    open: str | None = None
    version: Any = None
    drawn: Annotated[list[FormText], Field(max_length=MAX_ROWS)] | None = None


class ExperimentRequest(OwnerRequest):
    """An experiment of the owner."""

    experiment: str = ""


class ActOnExperiment(ExperimentRequest):
    """An action of the owner on an experiment."""

    action: Literal["pause", "cancel", "resume", "delete"]


class StoredVariant(TypedDict):
    """The curve of a variant in a stored result: exact match by step, or by length with `reach`.

    `steps_to` has its steps to 99 % within `budget`, as in `analysis.summarize_variant`, and
    `reach` its lengths with 99 %, as in `length_generalization.SchemeResult`.
    """

    label: str
    steps_to: dict[str, Any] | None
    budget: int
    reach: dict[str, Any] | None
    positions: list[int]
    exact_match: list[float]


class ExperimentPreset(TypedDict):
    """A prepared experiment; `experiment` is that of the owner with the same settings.

    `verdict`: whether its stored result shows a difference.
    """

    name: str
    title: str
    verdict: str
    why: str
    runs: int
    kind: Literal["grid", "lengths"]
    varied: str
    estimate: Estimate
    experiment: str | None
    stored: list[StoredVariant]


class VariableSetting(TypedDict):
    """A setting that an experiment may vary; `accepts` describes its values."""

    name: str
    label: str
    group: str
    help: str
    accepts: str
    suggested: str
    default: str


class PresetList(TypedDict):
    presets: list[ExperimentPreset]
    settings: list[VariableSetting]


class PlannedVariant(TypedDict):
    label: str
    values: dict[str, Any]
    parameters: int
    steps: int


class Plan(TypedDict):
    runs: int
    variants: list[PlannedVariant]
    estimate: Estimate
    test: str  # what a test of the seeds can show


class Places(TypedDict):
    slurm: bool
    hf_jobs: JobsAccess
    jobs: int  # for which the machines have prices
    machines: list[Machine]


class StartedExperiment(TypedDict):
    experiment: str


class ExperimentState(TypedDict):
    """The state of an experiment; `statuses` counts its runs. A stored result has no time."""

    id: str
    name: str
    question: str
    kind: Literal["grid", "lengths"]
    created: NotRequired[float]
    state: Literal["running", "done", "paused", "cancelled"]
    message: str
    runs: int
    statuses: dict[str, int]
    queue_position: int | None
    elsewhere: NotRequired[Elsewhere | None]


class ExperimentSummary(ExperimentState):
    share: float  # of its steps that is done


class PlannedRun(TypedDict):
    variant: str
    seed: int
    run: str | None  # null for one that does not exist
    status: str
    step: int
    queue_position: int | None
    steps: NotRequired[int]
    message: NotRequired[str]


class VariantResults(TypedDict):
    """The results of all variants; `drawn` has those with curves and runs, the best first.

    `n_variants` is their number. The page gets up to `MAX_ROWS`, the best ones.
    """

    fields: list[str]
    variants: list[VariantResult]
    n_variants: NotRequired[int]
    drawn: list[str]
    summary: str
    test: str


class LengthResults(TypedDict):
    trained: tuple[int, int]
    max_length: int
    n_requested: int
    rows: list[SchemeResult]
    summary: str
    test: str


class Results(TypedDict):
    results: VariantResults
    lengths: NotRequired[LengthResults]
    spec: NotRequired[dict[str, Any]]


class OpenExperiment(ExperimentState):
    """The open experiment; `results` is null if the page has this version of them."""

    planned_runs: list[PlannedRun]
    estimate: Estimate
    version: str
    origin: NotRequired[str]
    results: Results | None


class ExperimentList(TypedDict):
    experiments: list[ExperimentSummary]
    open: OpenExperiment | None


class ExportedExperiment(Results):
    """The response of `experiments/json`: every number of an experiment."""


class CsvFile(TypedDict):
    csv: str
