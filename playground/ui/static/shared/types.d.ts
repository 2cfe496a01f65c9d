// The data that the shared modules exchange with the server and the tabs.

export type { CheckpointSummary, RunList, RunStatus, RunSummary } from "./responses.js";

/** A reference to a model: `run:ID`, `watch:ID` or `checkpoint:NAME`. */
export type ModelRef = string;

export type JobStatus = "idle" | "waiting" | "working" | "done" | "failed" | "cancelled";

/** The state of a background job, as a component shows it. */
export interface JobState {
  status: JobStatus;
  message: string;
  /** The progress of the job; `total` is 0 if it is not known. */
  done: number;
  total: number;
  unit: string;
  canRetry: boolean;
  /** Of the error, if the page handles it in a special way. */
  code: string;
  /** What a job that works has so far. */
  partial: any;
  result: any;
}

/** What a link selects. Absent values are null. */
export interface ViewState {
  tab: string | null;
  model: ModelRef | null;
  step: number | null;
  input: string | null;
}

export interface Subscription {
  /** The route below playground/api/. */
  route: string;
  /** Return the payload, or null to skip this round. */
  payload: () => object | null;
  onData: (response: any) => void;
  onError?: (error: Error) => void;
  intervalMs: number | (() => number);
  /** The interval while the page is hidden; without one, a hidden page does not poll. */
  hiddenIntervalMs?: number;
  /** Whether the subscriber is visible; a hidden one is not polled. */
  isVisible?: () => boolean;
}

/** A line of a chart. */
export interface Series {
  key: string;
  label: string;
  x: ArrayLike<number>;
  y: ArrayLike<number | null>;
  /** The limits of a band, at the positions of `x`. */
  low?: ArrayLike<number | null>;
  high?: ArrayLike<number | null>;
  /** An index into the palette, or a CSS color or variable such as "--pg-accent". */
  color: number | string;
  /** An index into the dash patterns; the default is the index of the color. */
  dash?: number;
  hasPoints?: boolean;
  /** The key of the line whose entry in the legend stands for this one, too. */
  partOf?: string;
}

/** A vertical line of a chart. */
export interface Marker {
  x: number;
  label?: string;
  color?: string;
}

export interface ChartOptions {
  /** The name of the quantity on the y axis. */
  label: string;
  xLabel?: string;
  height?: number;
  isLog?: boolean;
  formatX?: (x: number) => string;
  formatY?: (y: number) => string;
  /** The text of a tick of the y axis; the default is formatY. */
  formatTick?: (y: number) => string;
  /** Where the legend is; the default is above the plot. */
  legendBox?: HTMLElement;
  /** The limits of an axis. Null stands for the limit of the data. */
  xRange?: [number | null, number | null];
  yRange?: [number | null, number | null];
  /** The position of the values in the legend without a cursor; the default is the latest one. */
  restingX?: number | null;
  /** Whether the name of the x axis is below it; the default is true. */
  hasXLabel?: boolean;
  /** Charts with the same key share their cursor. */
  syncKey?: string;
  /** The text of a chart without data. */
  emptyText?: string;
  /** A part of the x axis with another background. */
  shaded?: [number, number];
  onSelect?: (x: number) => void;
  onCursor?: (x: number | null) => void;
}

/** The content of a heat map. */
export interface HeatMapData {
  rows: string[];
  columns: string[];
  /** One array per row. Null stands for a missing value, which is hatched. */
  values: ArrayLike<number | null>[];
  /** Whether a cell has a value; masked cells are hatched. */
  mask?: boolean[][] | null;
  /** The value with the darkest color; by default 1, or the largest of signed values. */
  max?: number;
  isSigned?: boolean;
  selected?: [number, number] | null;
  /** The row with an outline. */
  row?: number | null;
  /** The largest size of a cell in pixels. */
  maxCellSize?: number;
}

export interface Option {
  value: string;
  label: string;
  example?: string;
  title?: string;
  group?: string;
}

/** A field of a form. */
export interface FieldSpec {
  name: string;
  label: string;
  type?: "text" | "password" | "textarea" | "number" | "select" | "radio" | "checkbox";
  placeholder?: string;
  hint?: string;
  options?: Option[];
  min?: number;
  max?: number;
  step?: number;
  isInteger?: boolean;
  isRequired?: boolean;
  maxLength?: number;
  /** Values that a text field offers while the user types. */
  suggestions?: string[];
  /** Return an error message, or an empty string. */
  validate?: (value: any) => string;
}

/** A column of a table. */
export interface Column<Row = any> {
  key: string;
  label: string;
  /** The value that is sorted and exported. The default is the property `key` of the row. */
  value?: (row: Row) => any;
  /** The content of the cell. The default is the value as text. */
  render?: (row: Row) => any;
  /** The CSS declarations of the cell. */
  style?: (row: Row) => string;
  /** The title of the heading. */
  help?: string;
  isNumber?: boolean;
  isSortable?: boolean;
  /** Whether a narrow page hides the column. */
  isOptional?: boolean;
}
