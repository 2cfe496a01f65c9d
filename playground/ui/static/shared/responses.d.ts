// The responses of the server. tests/integration/server/test_response_types.py compares them with
// the responses of the routes: every field is declared here, and every declared one is there.

/** A reference to a model: `run:ID`, `watch:ID` or `checkpoint:NAME`. */
export type ModelRef = string;

export type RunStatus =
  "waiting" | "starting" | "training" | "paused" | "stopping" | "stopped" | "done" | "failed";

/** A failed request; `retryable` means that the same request may succeed soon. */
export interface ErrorResponse {
  error: string;
  retryable?: boolean;
  /** The setting that the error is about. */
  field?: string;
  /** The kind of an error that the page handles in a special way. */
  code?: string;
}

/** The response of `runs/list`. */
export interface RunList {
  runs: RunSummary[];
  checkpoints: CheckpointSummary[];
  storage_message: string;
  /** The time of the server in seconds. */
  now: number;
  slots: number;
  device: string;
  note: string;
}

export interface RunSummary {
  subject: ModelRef;
  name: string;
  status: RunStatus;
  task: string;
  /** The numbers of layers and heads, and the width. */
  shape: [number, number, number];
  parameters: number;
  step: number;
  max_steps: number;
  best: number | null;
  eval_size: number;
  created: number;
  origin: string;
  hidden: boolean;
  tags: string[];
  deleted: boolean;
  evicted: "" | "thinned" | "emptied";
  queue_position: number | null;
}

export interface CheckpointSummary {
  subject: ModelRef;
  name: string;
  about: string;
  task: string;
  parameters: number;
  best: number | null;
}

/** The response of `runs/poll` for a model; null stands for what the page has already. */
export interface ModelPoll {
  status: RunStatus | "checkpoint";
  message: string;
  is_owner: boolean;
  /** What the user may do with the model; each right includes those before it. */
  right: "watch" | "use" | "reuse" | "own";
  /** Why viewers see no examples; empty if they may. */
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

/** The same for a run. */
export interface RunPoll extends ModelPoll {
  changes_version: number;
  branched_from_step: number | null;
  queue_position: number | null;
  /** The seconds of training that are left, and the reason. */
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

/** Metrics by step. With `whole` they replace the points of the page. */
export interface Points {
  whole: boolean;
  count: number;
  steps: number[];
  loss: number[];
  learning_rate: number[];
  grad_norm: number[];
  /**
   * The step, exact match, token accuracy, number of sequences and held-out loss of each evaluation.
   * Not every evaluation has a held-out loss.
   */
  evaluations: [number, number, number, number, number | null][];
}

export interface LatestPoint {
  step: number;
  loss?: number;
  learning_rate?: number;
  grad_norm?: number;
  seconds?: number;
  steps_per_second?: number;
}

export interface Scores {
  n: number;
  exact_match: number;
  token_accuracy: number;
  by_length: LengthScore[];
}

export interface LengthScore {
  length: number;
  n: number;
  exact_match: number | null;
  token_accuracy: number | null;
  available: number | null;
}

/** What the live view draws of one step; weights and probabilities are in thousandths. */
export interface Snapshot {
  step: number;
  samples: Sample[];
  /** The weights by kind of attention, layer, head and cell. */
  attention: Record<string, number[][][]>;
  probe: TargetPrediction | null;
  contributions: Record<string, number>;
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

/** What the live view needs once for a model. */
export interface ProbeInfo {
  source: string[];
  /** The labels of the rows and the columns by kind of attention. */
  axes: Record<string, [string[], string[]]>;
  accepts: string;
  default_input: string;
  parameters: number;
  architecture: string;
  n_layers: number;
  component_parameters: Record<string, number>;
  /** Whether the engine of the page runs the model. */
  in_browser: boolean;
}

/** The response of `runs/model`: what the engine needs to run the model, beside its weights. */
export interface ModelDescription {
  architecture: string;
  model: Record<string, any>;
  task: string;
  symbols: string[];
  /** The number of digits that the task counts with. */
  n_symbols: number;
  max_tokens: number;
  /** The shortest and the longest input of training. */
  lengths: [number, number];
  /** Held-out sequences; none for viewers of a model on private data. */
  examples: Example[];
}

/** Tokens of an input and of the right output. Both end with EOS. */
export interface Example {
  source: number[];
  labels: number[];
}

/** The response of `runs/details`; viewers get no checkpoints and no share link. */
export interface RunDetails {
  settings: Record<string, any>;
  /** Which optimizer trains which weights, in words. */
  optimizer_groups: string;
  changes?: [number, string, any][];
  name?: string;
  created?: number;
  branched_from?: number | null;
  share_id?: string;
  /** Whether viewers may see examples and use the model. */
  viewers_may_use?: boolean;
  checkpoints?: RunCheckpoint[];
  damaged?: DamagedRecord[];
}

/** A record on disk that cannot be read, in the responses of `damaged/list` and `runs/details`. */
export interface DamagedRecord {
  kind: string;
  name: string;
  /** A sentence. */
  reason: string;
  bytes: number;
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

/** The counts and the first examples of a dataset. */
export interface DatasetSummary {
  /** The format, the separator and the first line, as a sentence; empty for a stored dataset. */
  recognized: string;
  /** Whether the first line names the columns; null for formats without such a line. */
  has_names: boolean | null;
  columns: string[];
  /** The columns of sources and targets. */
  selected: string[];
  n_rows: number;
  n_skipped: number;
  /** Why the first rows that are left out cannot be used. */
  skipped: string[];
  n_normalized: number;
  n_pairs: number;
  vocab_size: number;
  /** The first tokens. */
  vocabulary: string[];
  /** Whether a token is a word; else it is a character. */
  split_on_spaces: boolean;
  /** The smallest and the largest length. */
  source_lengths: [number, number];
  target_lengths: [number, number];
  /** Null if there are too many examples to count. */
  n_held_out: number | null;
  /** What a score on few held-out examples can show; else empty. */
  held_out_warning: string;
  n_duplicates: number;
  n_conflicts: number;
  /** The first lines with another target than an earlier line. */
  conflict_lines: number[];
  preview: [string[], string[]][];
}

/** The response of `datasets` for a valid dataset. */
export interface DatasetReport extends DatasetSummary {
  sha256: string;
}

/** The same for an invalid one. */
export interface DatasetErrors {
  error: string;
  retryable?: boolean;
  lines?: string[];
  /** The number of rejected lines. */
  n_rejected?: number;
  /** The names to choose from, if a choice is missing or wrong. */
  columns?: string[];
  configs?: string[];
  splits?: string[];
}

/** The same for one with valid lines beside the invalid ones. */
export interface PartialDataset extends DatasetSummary {
  error: string;
  lines: string[];
  n_rejected: number;
  columns: string[];
  configs: string[];
  splits: string[];
}

/** A dataset in the response of `datasets/action` with `list`. */
export interface StoredDataset {
  sha256: string;
  /** The name under which the user added it; empty if there is none. */
  name: string;
  bytes: number;
  n_pairs?: number;
  vocab_size?: number;
  vocabulary?: string[];
  /** Why it cannot be read; then it has no counts. */
  damaged?: string;
}

/** The response of `jobs/poll`. */
export interface JobPoll {
  status: "waiting" | "working" | "done" | "failed" | "cancelled";
  kind: string;
  message: string;
  done: number;
  total: number;
  unit: string;
  rows: any[];
  cursor: number;
  result: any;
  /** Of the error, if the page handles it in a special way. */
  code: string;
  retryable: boolean;
  queue_position: number;
}

/** The response of `experiments/presets`: the form of the Lab. */
export interface ExperimentForm {
  presets: ExperimentPreset[];
  settings: VariableSetting[];
}

export interface ExperimentPreset {
  name: string;
  title: string;
  why: string;
  runs: number;
  kind: "grid" | "lengths";
  varied: string;
  estimate: Estimate;
  experiment: string | null;
}

export interface Estimate {
  seconds: number;
  unknown: number;
  is_measured: boolean;
  message: string;
}

export interface VariableSetting {
  name: string;
  label: string;
  group: string;
  help: string;
  accepts: string;
  suggested: string;
  default: string;
}

/** What every view of the Inspect tab has. */
export interface InspectView {
  step: number;
  /** An example input in the symbols of the model. */
  default_input: string;
}

/** The model's output for the input; `target` is null if it is unknown. */
export interface AnswerView extends InspectView {
  prediction: string[];
  target: string[] | null;
  note: string;
  /** The views that exist for the architecture of the model. */
  views: string[];
}

/** The view `attention`. */
export interface AttentionView extends AnswerView {
  kind: "encoder" | "decoder" | "cross";
  kinds: string[];
  layers: number;
  heads: number;
  rows: string[];
  columns: string[];
  /** Thousandths by layer, head, row and column: 16-bit integers in base64. */
  weights: string;
  possible: number[][];
  architecture: string;
}

/** The view `steps`. */
export interface StepsView extends AnswerView {
  source: string[];
  heads: string[];
  steps: Record<string, any>[];
}

/** The view `heads`. */
export interface HeadsView extends InspectView {
  sequences: number;
  lengths: number[];
  patterns: Record<string, string>;
  heads: Record<string, any>[];
}

/** The view `ablation`. */
export interface AblationView extends InspectView {
  method: "mean" | "zero";
  set: "single" | "groups" | "keep";
  sequences: number;
  is_reduced: boolean;
  lengths: number[];
  baseline: Record<string, number | null>;
  rows: Record<string, any>[];
  summary: string;
}

/** The view `ablated-answer`. */
export interface AblatedAnswerView extends AnswerView {
  source: string[];
  intact: Record<string, any>;
  ablated: Record<string, any>;
  vocabulary: string[];
  components: string[];
  groups: Record<string, string[]>;
}

/** The view `patch`. */
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
}

/** The view `lens`. */
export interface LensView extends AnswerView {
  layers: string[];
  decoder_input: string[];
  labels: string[];
  vocabulary: string[];
  candidates: [string, number | null][][][];
  target_probability: (number | null)[][];
}

/** The view `contributions`. */
export interface ContributionsView extends InspectView {
  position: number;
  token: string;
  /** The token whose logit is subtracted, or null. */
  baseline_token: string | null;
  runner_up: string;
  contributions: Record<string, any>[];
  sum: number | null;
  logit: number | null;
}

/** The view `trace`. */
export interface TraceView extends AnswerView {
  steps: Record<string, any>[];
  stages: Record<string, any>[];
  chosen: Record<string, any>;
  source: string[];
  decoder_input: string[];
}

/** A number of a stage in the view `trace-cell`: a dot product. */
export interface ProductCellView extends InspectView {
  kind: "product";
  row: number;
  column: number;
  value: number | null;
  names: [string, string];
  /** The positions of the terms in the vectors; the largest ones if there are very many. */
  at: number[];
  left: (number | null)[];
  right: (number | null)[];
  products: (number | null)[];
  /** The number of all terms. */
  terms: number;
  sum: number | null;
  root: number | null;
  bias: number | null;
  /** Whether the mask allows the score, if it is one. */
  attended?: boolean;
}

/** The same: a row as the sum of rows, the last of which stands for `others`. */
export interface MixedCellView extends InspectView {
  kind: "mixed";
  row: number;
  column: number;
  value: number | null;
  rows: string[];
  others: number;
  weights: (number | null)[] | null;
  terms: (number | null)[][];
  result: (number | null)[];
}

/** The same: an equation with its variables; a softmax also has its score. */
export interface EquationCellView extends InspectView {
  kind: "parts";
  row: number;
  column: number;
  value: number | null;
  equation: string;
  parts: [string, number | null][];
  score?: Record<string, any>;
}

/** The view `attention-scores`: how one query of a head gets its weights. Masked scores are null. */
export interface AttentionScoresView extends InspectView {
  query: (number | null)[];
  keys: (number | null)[][];
  /** The dot product of the query and each key. */
  products: (number | null)[];
  /** The square root of the size of a head. */
  root: number;
  /** The bias of the position encoding, if there is one. */
  bias: (number | null)[] | null;
  scores: (number | null)[];
  weights: (number | null)[];
}

/** The view `embeddings`. */
export interface EmbeddingsView extends AnswerView {
  side: "source" | "target";
  positions: Record<string, any>;
  tokens: string[];
  token: string;
  nearest: [string, number | null][];
  map: Record<string, any>;
}

/** The view `parameters`. */
export interface ParametersView extends AnswerView {
  components: Record<string, any>[];
  total: number;
}

/** The view `gates`. */
export interface GatesView extends AnswerView {
  cell: string;
  stack: "encoder" | "decoder";
  layer: number;
  layers: number;
  tokens: string[];
  quantity: string;
  is_gate: boolean;
  quantities: Record<string, any>[];
  values: (number | null)[][];
  of: number[];
}
