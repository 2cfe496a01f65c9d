// The responses of the server. `python -m scripts.write_response_types` writes this file.

export type RunStatus = "waiting" | "starting" | "training" | "paused" | "stopping" | "stopped" | "done" | "failed";

/** A failed request, which may have further fields. `retryable` means that the same request may succeed soon. */
export interface ErrorResponse {
  error: string;
  retryable?: boolean;
  /** the setting that the error is about */
  field?: string;
  /** the kind of an error that the page handles in a special way */
  code?: string;
}

/** A run of a lesson. */
export interface MeasuredRun {
  label: string;
  run: string;
  steps: number;
}

/** The measured value of a lesson, with its figures. */
export interface LessonResult {
  value: number | string | null;
  outcome: string;
  explanation: string;
  figures: Record<string, any>[];
  options: Record<string, any>;
  runs: MeasuredRun[];
}

/** The response of an action without a result. */
export interface Done {
}

export interface OpenedClass {
  code: string;
  days: number;
}

export interface ClassGuesses {
  lesson: string;
  n_pupils: number;
  n_guesses: Record<string, number>;
  guesses: (number[] | number | string)[];
}

export interface DamagedRecord {
  kind: string;
  name: string;
  /** a sentence */
  reason: string;
  bytes: number;
}

export interface DamagedList {
  damaged: DamagedRecord[];
}

export interface StoredDataset {
  sha256: string;
  /** the name under which the user added it; empty if there is none */
  name: string;
  bytes: number;
  n_pairs?: number;
  vocab_size?: number;
  vocabulary?: string[];
  /** why it cannot be read; then it has no counts */
  damaged?: string;
}

export interface StoredDatasets {
  datasets: StoredDataset[];
}

/** The counts and the first examples of a dataset. */
export interface DatasetSummary {
  /** the format, the separator and the first line, as a sentence; empty for a stored dataset */
  recognized: string;
  /** whether the first line names the columns; null for formats without such a line */
  has_names: boolean | null;
  columns: string[];
  /** the columns of sources and targets */
  selected: string[];
  n_rows: number;
  n_skipped: number;
  /** why the first rows that are left out cannot be used */
  skipped: string[];
  n_normalized: number;
  n_pairs: number;
  vocab_size: number;
  /** the first tokens */
  vocabulary: string[];
  /** whether a token is a word; else it is a character */
  split_on_spaces: boolean;
  /** the smallest and the largest length */
  source_lengths: [number, number];
  target_lengths: [number, number];
  n_held_out: number;
  /** what a score on few held-out examples can show; else empty */
  held_out_warning: string;
  n_duplicates: number;
  n_conflicts: number;
  /** the first lines with another target than an earlier line */
  conflict_lines: number[];
  preview: [string[], string[]][];
}

/** The response of `datasets` for a valid dataset. */
export interface DatasetReport extends DatasetSummary {
  sha256: string;
}

/** The same for one with valid lines beside the invalid ones. */
export interface PartialDataset extends DatasetSummary {
  error: string;
  lines: string[];
  n_rejected: number;
  configs: string[];
  splits: string[];
}

/** The same for an invalid one. */
export interface DatasetErrors {
  error: string;
  retryable?: boolean;
  lines?: string[];
  /** the number of rejected lines */
  n_rejected?: number;
  /** the names to choose from, if a choice is missing or wrong */
  columns?: string[];
  configs?: string[];
  splits?: string[];
}

export interface CsvFile {
  csv: string;
}

/** The result of a variant over its seeds; `planned` counts runs, `n` those with a score. Where nothing draws them, the curves and those of unfinished runs (`live`) are empty, and `seeds` has only the names of the runs. */
export interface VariantResult {
  label: string;
  short: string;
  values: Record<string, any>;
  planned: number;
  n: number;
  diverged: number;
  changed: number;
  exact_match: Record<string, any> | null;
  steps_to: Record<string, any> | null;
  at_budget: Record<string, any> | null;
  by_seed: Record<string, any[]>;
  budget: number;
  eval_every: number;
  eval_size: number;
  steps: number;
  seconds: Record<string, any> | null;
  curve: Record<string, number[]>;
  loss: Record<string, number[]>;
  live: Record<string, any>[];
  seeds: Record<string, any>[];
}

/** The results of all variants; `drawn` has those with curves and runs, the best first. `n_variants` is their number. The page gets up to `MAX_ROWS`, the best ones. */
export interface VariantResults {
  fields: string[];
  variants: VariantResult[];
  n_variants?: number;
  drawn: string[];
  summary: string;
  test: string;
}

/** The exact match of a scheme by length, over its seeds. reach the maximum reliable length, of each seed in `reaches` beyond the mean exact match beyond the training lengths */
export interface SchemeResult {
  label: string;
  planned: number;
  n: number;
  out: number;
  lengths: number[];
  median: number[];
  low: number[];
  high: number[];
  reach: Record<string, any> | null;
  reaches: number[];
  max_length: number;
  beyond: Record<string, any> | null;
  runs: Record<string, any>[];
}

export interface LengthResults {
  trained: [number, number];
  max_length: number;
  n_requested: number;
  rows: SchemeResult[];
  summary: string;
  test: string;
}

export interface Results {
  results: VariantResults;
  lengths?: LengthResults;
  spec?: Record<string, any>;
}

/** The response of `experiments/json`: every number of an experiment. */
export interface ExportedExperiment extends Results {
}

/** A kind of machine with its price in dollars: an hour, and of all jobs of an experiment. `seconds` is the expected duration of the longest job. */
export interface Machine {
  flavor: string;
  name: string;
  cpu: string;
  hourly: number;
  seconds: number;
  cost: number;
}

export interface Places {
  slurm: boolean;
  hf_jobs: "ready" | "sign-in" | "no-token" | "off";
  /** for which the machines have prices */
  jobs: number;
  machines: Machine[];
}

export interface PlannedVariant {
  label: string;
  values: Record<string, any>;
  parameters: number;
  steps: number;
}

/** The remaining time; a limit where runs end early, at an exact match. */
export interface Estimate {
  seconds: number;
  is_limit: boolean;
  is_measured: boolean;
  message: string;
}

export interface Plan {
  runs: number;
  variants: PlannedVariant[];
  estimate: Estimate;
  /** what a test of the seeds can show */
  test: string;
}

/** The finished runs of a shard; `state` is that of its job, empty without one. */
export interface ShardProgress {
  runs: number;
  done: number;
  state: string;
}

/** Where an experiment trains; `account` pays for it, and `needs_token` waits for its user. */
export interface Elsewhere {
  backend: string;
  account: string;
  needs_token: boolean;
  shards: ShardProgress[];
}

/** The state of an experiment; `statuses` counts its runs. A stored result has no time. */
export interface ExperimentState {
  id: string;
  name: string;
  question: string;
  kind: "grid" | "lengths";
  created?: number;
  state: "running" | "done" | "paused" | "cancelled";
  message: string;
  runs: number;
  statuses: Record<string, number>;
  queue_position: number | null;
  elsewhere?: Elsewhere | null;
}

export interface ExperimentSummary extends ExperimentState {
  /** of its steps that is done */
  share: number;
}

export interface PlannedRun {
  variant: string;
  seed: number;
  /** null for one that does not exist */
  run: string | null;
  status: string;
  step: number;
  queue_position: number | null;
  steps?: number;
  message?: string;
}

/** The open experiment; `results` is null if the page has this version of them. */
export interface OpenExperiment extends ExperimentState {
  planned_runs: PlannedRun[];
  estimate: Estimate;
  version: string;
  origin?: string;
  results: Results | null;
}

export interface ExperimentList {
  experiments: ExperimentSummary[];
  open: OpenExperiment | null;
}

/** The curve of a variant in a stored result: exact match by step, or by length with `reach`. `steps_to` has its steps to 99 % within `budget`, as in `analysis.summarize_variant`, and `reach` its lengths with 99 %, as in `length_generalization.SchemeResult`. */
export interface StoredVariant {
  label: string;
  steps_to: Record<string, any> | null;
  budget: number;
  reach: Record<string, any> | null;
  positions: number[];
  exact_match: number[];
}

/** A prepared experiment; `experiment` is that of the owner with the same settings. `verdict`: whether its stored result shows a difference. */
export interface ExperimentPreset {
  name: string;
  title: string;
  verdict: string;
  why: string;
  runs: number;
  kind: "grid" | "lengths";
  varied: string;
  estimate: Estimate;
  experiment: string | null;
  stored: StoredVariant[];
}

/** A setting that an experiment may vary; `accepts` describes its values. */
export interface VariableSetting {
  name: string;
  label: string;
  group: string;
  help: string;
  accepts: string;
  suggested: string;
  default: string;
}

export interface PresetList {
  presets: ExperimentPreset[];
  settings: VariableSetting[];
}

export interface StartedExperiment {
  experiment: string;
}

/** The size of the model, and the errors by field; one of them is empty. */
export interface FormCheck {
  size: string;
  errors: Record<string, string>;
}

export interface FormValues {
  values: Record<string, any>;
}

export interface StartedRun {
  subject?: string;
  errors?: Record<string, string>;
}

export interface HubSession {
  method: "oauth" | "none" | "machine" | "typed";
  signed_in: boolean;
  name: string;
  /** whether the runs of the server outlive its restart */
  lasting: boolean;
}

export interface InspectView {
  step: number;
  /** an example input in the symbols of the model */
  default_input?: string;
}

/** The model's output for the input; `target` is null if it is unknown. */
export interface AnswerView extends InspectView {
  prediction: string[];
  target: string[] | null;
  note: string;
  /** the views that exist for the architecture of the model */
  views: string[];
}

export interface AttentionView extends AnswerView {
  kind: "encoder" | "decoder" | "cross";
  kinds: string[];
  layers: number;
  heads: number;
  rows: string[];
  columns: string[];
  /** thousandths by layer, head, row and column: 16-bit integers in base64 */
  weights: string;
  possible: number[][];
  architecture: string;
}

export interface HeadsView extends InspectView {
  sequences: number;
  lengths: number[];
  patterns: Record<string, string>;
  heads: Record<string, any>[];
}

export interface AblationView extends InspectView {
  method: "mean" | "zero" | "resample";
  set: "single" | "groups" | "keep";
  sequences: number;
  is_reduced: boolean;
  lengths: number[];
  baseline: Record<string, number | null>;
  rows: Record<string, any>[];
}

export interface OutputView extends AnswerView {
  source: string[];
  vocabulary: string[];
}

/** The fraction recovered, and the fraction lost, by layer and position of one side. */
export interface LayerTable {
  side: "source" | "target";
  rows: string[];
  restored: ((number | null)[])[];
  lost: ((number | null)[])[];
}

export interface PatchView extends InspectView {
  source: string[];
  corrupted_source: string[];
  source_position: number;
  replacement: string;
  position: number;
  clean_token: string;
  corrupted_token: string;
  clean_logit_diff: number | null;
  corrupted_logit_diff: number | null;
  heads: Record<string, any>[];
  pairs: number;
  layers: LayerTable[];
}

export interface LensView extends AnswerView {
  layers: string[];
  decoder_input: string[];
  labels: string[];
  vocabulary: string[];
  candidates: ((([string, number | null])[])[])[];
  target_probability: ((number | null)[])[];
}

/** The view `contributions`; `labels` are the target, `vocabulary` the tokens to choose from. */
export interface ContributionsView extends AnswerView {
  labels: string[];
  vocabulary: string[];
  position: number;
  token: string;
  /** the token whose logit is subtracted, or null */
  baseline_token: string | null;
  runner_up: string;
  contributions: Record<string, any>[];
  sum: number | null;
  logit: number | null;
}

export interface TraceView extends AnswerView {
  stages: Record<string, any>[];
  chosen: Record<string, any>;
}

/** The view `attention-scores`: how one query of a head gets its weights. */
export interface AttentionScoresView extends InspectView {
  query: (number | null)[];
  keys: ((number | null)[])[];
  /** the dot product of the query and each key */
  products: (number | null)[];
  /** the square root of the size of a head */
  root: number;
  /** the bias of the position encoding, if there is one */
  bias: (number | null)[] | null;
  scores: (number | null)[];
  weights: (number | null)[];
}

export interface EmbeddingsView extends AnswerView {
  side: "source" | "target";
  positions: Record<string, any>;
  tokens: string[];
  token: string;
  nearest: ([string, number | null])[];
  map: Record<string, any>;
}

export interface ParametersView extends AnswerView {
  components: Record<string, any>[];
  total: number;
}

export interface GatesView extends AnswerView {
  cell: string;
  stack: "encoder" | "decoder";
  layer: number;
  layers: number;
  tokens: string[];
  quantity: string;
  is_gate: boolean;
  quantities: Record<string, any>[];
  values: ((number | null)[])[];
  of: number[];
}

export interface JobPoll {
  status: "waiting" | "working" | "done" | "failed" | "cancelled";
  kind: string;
  message: string;
  done: number;
  total: number;
  unit: string;
  rows: Record<string, any>[];
  cursor: number;
  /** what a job that works has so far */
  partial: Record<string, any>;
  result: any;
  /** of the error, if the page handles it in a special way */
  code: string;
  retryable: boolean;
  queue_position: number;
}

export interface SubmittedJob {
  job: string;
}

/** An option that the user can change; one without choices is a text. */
export interface LessonOption {
  name: string;
  label: string;
  default: string;
  choices: string[];
}

/** A lesson without its answer; see `lessons.Lesson`. */
export interface LessonInfo {
  name: string;
  title: string;
  introduction: string;
  instruction: string;
  question: string;
  kind: "curve" | "number" | "choice";
  low: number;
  high: number;
  unit: string;
  tolerance: number;
  choices: [string, string][];
  options: LessonOption[];
  pretrained_job: "" | "translate" | "next-token";
  sources: string;
  sources_anchor: string;
  is_recorded: boolean;
  reuses_runs: boolean;
  estimate: Estimate;
}

export interface BugInfo {
  name: string;
  title: string;
}

export interface Machine {
  slots: number;
  slots_per_owner: number;
  max_measurements: number;
  timeout_s: number;
  is_shared: boolean;
}

export interface Catalog {
  lessons: LessonInfo[];
  bugs: BugInfo[];
  machine: Machine;
  bug_seconds: number;
  docs: string | null;
  sources: string | null;
  seed: number;
  steps: number;
  max_steps: number;
}

/** The comparison of both models; what an exercise hides is empty or absent. */
export interface BugResult {
  seed: number;
  steps: number;
  is_hidden: boolean;
  name: string;
  title: string;
  bug_identified: boolean;
  line_identified: boolean;
  explanation: string;
  origin: string;
  n: number;
  vocab_size: number;
  curves: Record<string, any>;
  correct: Record<string, any>;
  buggy: Record<string, any>;
  source?: Record<string, any>;
  changed_line?: number;
  diff?: string[];
}

/** A hint for a wrong guess, and the result as the user may now see it. */
export interface GuessResult {
  feedback: string;
  result: BugResult;
}

/** The project's own result of a claim. */
export interface StoredResult {
  text: string;
  passed: boolean;
  date: string;
  seeds: number;
}

export interface ClaimStatus {
  name: string;
  title: string;
  source: string;
  measure: string;
  statement: string;
  published: number | null;
  criterion: string;
  deviations: string[];
  curve: [number, number][];
  description: string;
  settings: Record<string, any>;
  command: string;
  stored: StoredResult | null;
  parameters?: number;
  estimate: Estimate;
  experiment: string | null;
  state: string;
  step: number;
  steps: number;
  queue_position: number | null;
  message: string;
}

export interface ClaimList {
  claims: ClaimStatus[];
}

/** The comparison of measurements with a claim, for JSON. measured the median over the seeds, or a value for each variant; `measured_text` as text passed whether the criterion is met; None without a measurement summary all of it in one text by_seed of runs: the measured value of each curve of runs: the values that the published curve of the claim is compared with */
export interface Result {
  name: string;
  published: any;
  statement: string;
  criterion: string;
  measured: any;
  passed: boolean | null;
  summary: string;
  verdict?: string;
  measured_text?: string;
  by_seed?: any[];
  curve?: any[];
}

/** The response of `runs/action`: the model that the page opens, or a link to download it. */
export interface ModelChange {
  subject?: string;
  ticket?: string;
}

/** Metrics by step. With `whole` they replace the points of the page. */
export interface Points {
  whole: boolean;
  count: number;
  steps: number[];
  loss: number[];
  learning_rate: number[];
  grad_norm: number[];
  /** step, exact match, token accuracy, number of sequences and held-out loss of each evaluation */
  evaluations: ([number, number, number, number, number | null])[];
}

export interface OverlaidCurve extends Points {
  subject: string;
  name: string;
  status: RunStatus;
  step: number;
}

export interface CurveList {
  curves: OverlaidCurve[];
}

export interface RunCheckpoint {
  name: string;
  step: number;
  bytes: number;
  written: number;
  exact_match: number | null;
  is_pinned: boolean;
  resumable: boolean;
}

/** The response of `runs/details`; viewers get no checkpoints and no share link. */
export interface RunDetails {
  settings: Record<string, any>;
  /** which optimizer trains which weights, in words */
  optimizer_groups: string;
  /** what it learned, in a sentence; empty before the first score */
  result: string;
  /** trains it again on another computer */
  command: string | null;
  changes?: [number, string, any][];
  name?: string;
  created?: number;
  branched_from?: number | null;
  share_id?: string;
  /** whether viewers may see examples and use the model */
  viewers_may_use?: boolean;
  checkpoints?: RunCheckpoint[];
  damaged?: DamagedRecord[];
}

export interface RunSummary {
  subject: string;
  name: string;
  status: RunStatus;
  task: string;
  /** the numbers of layers and heads, and the width */
  shape: [number, number, number];
  parameters: number;
  step: number;
  max_steps: number;
  best: number | null;
  /** the exact match of some steps */
  curve: [number, number][];
  eval_size: number;
  created: number;
  origin: string;
  deleted: boolean;
  evicted: "" | "thinned" | "emptied";
  queue_position: number | null;
}

export interface CheckpointSummary {
  subject: string;
  name: string;
  about: string;
  task: string;
  parameters: number;
  best: number | null;
}

export interface RunList {
  runs: RunSummary[];
  checkpoints: CheckpointSummary[];
  storage_message: string;
  /** the time of the server in seconds */
  now: number;
  slots: number;
  device: string;
  note: string;
}

/** Tokens of an input and of the right output. Both end with EOS. */
export interface Example {
  source: number[];
  labels: number[];
}

/** The response of `runs/model`: what the engine needs to run the model, beside its weights. */
export interface ModelDescription {
  architecture: string;
  model: Record<string, any>;
  task: string;
  symbols: string[];
  /** the number of digits that the task counts with */
  n_symbols: number;
  max_tokens: number;
  /** the shortest and the longest input of training */
  lengths: [number, number];
  /** held-out sequences; none for viewers of a model on private data */
  examples: Example[];
}

export interface HtmlFile {
  html: string;
  name: string;
}

export interface LatestPoint {
  step: number;
  loss?: number;
  learning_rate?: number;
  grad_norm?: number;
  seconds?: number;
  steps_per_second?: number;
}

export interface Sample {
  source: string[];
  target: string[];
  prediction: string[];
}

export interface TargetPrediction {
  target: string[];
  predicted: string[];
  probability: number[];
}

/** What the live view draws of one step; weights and probabilities are in thousandths. */
export interface Snapshot {
  step: number;
  samples: Sample[];
  /** the weights by kind of attention, layer, head and cell */
  attention: Record<string, number[][][]>;
  probe: TargetPrediction | null;
  contributions: Record<string, number>;
}

export interface ProbeInfo {
  source: string[];
  /** the labels of the rows and the columns by kind of attention */
  axes: Record<string, [string[], string[]]>;
  accepts: string;
  default_input: string;
  parameters: number;
  architecture: string;
  n_layers: number;
  component_parameters: Record<string, number>;
  /** whether the engine of the page runs the model */
  in_browser: boolean;
}

export interface LengthScore {
  length: number;
  n: number;
  exact_match: number | null;
  token_accuracy: number | null;
  available: number | null;
}

export interface Scores {
  n: number;
  exact_match: number;
  token_accuracy: number;
  by_length: LengthScore[];
}

/** The response of `runs/poll` for a model; null stands for what the page has already. */
export interface ModelPoll {
  status: RunStatus | "checkpoint";
  message: string;
  is_owner: boolean;
  /** what the user may do with the model; each right includes those before it */
  right: "watch" | "use" | "reuse" | "own";
  /** why viewers see no examples; empty if they may */
  private: string;
  name: string;
  step: number;
  max_steps: number;
  parameters: number;
  device: string;
  series_id: number;
  points: Points;
  latest: LatestPoint;
  weight_steps: number[];
  snapshot_version: number;
  snapshot: Snapshot | null;
  probe_info: ProbeInfo | null;
  scores: Scores | null;
  changes: [number, string, any][] | null;
  checkpoint_version: number;
  has_worker: boolean;
  speed: number;
  learning_rate: number;
}

export interface RunPoll extends ModelPoll {
  changes_version: number;
  branched_from_step: number | null;
  queue_position: number | null;
  /** the seconds of training that are left, and the reason */
  time_left: [number, string] | null;
}

/** The response of `runs/poll` without a model; its `message` may name the reason. */
export interface NotFoundPoll {
  status: "not-found";
  message: string;
  series_id: number;
  points: Points;
  weight_steps: number[];
  step: number;
  retryable?: boolean;
}

export interface ForwardPass {
  source: string[];
  axes: Record<string, [string[], string[]]>;
  attention: Record<string, number[][][]>;
  probe: TargetPrediction;
  contributions: Record<string, number>;
}

export interface Prediction {
  prediction: string[];
  target: string[] | null;
  correct: boolean | null;
  note: string;
  step: number;
  forward_pass?: ForwardPass | null;
}

/** The response of `runs/snapshot`; a recorded checkpoint has no `probe_info`. */
export interface SnapshotAtStep {
  snapshot: Snapshot;
  probe_info?: ProbeInfo;
}

export interface OpenedSession {
  owner: string;
}
