// Texts that several views show.
export const EXACT_MATCH_TITLE = "Exact match on held-out sequences";
export const TOKEN_HINT = "Click a row of the map to select the token";
export const DECODER_INPUT = "Decoder input";
export const INPUT_SEQUENCE = "Input sequence";
export const LOSS_TITLE =
  "Cross-entropy of the next token: on the training batch of each step, and on the held-out " +
  "sequences of each evaluation, without dropout and with the averaged weights, if they are on";
export const MOST_PROBABLE_TOKENS = "The most probable tokens";
export const PEAK_LEARNING_RATE = "Peak learning rate";
export const PLAY_LABEL = "Play from here";
export const RETRYING = "The server did not respond; retrying";
export const SPEED_TITLE = "Slow motion shows single steps. New runs start at this speed.";
export const TRAINING_LOSS = "Training loss";
export const ATTENTION_KIND = "Kind of attention";
export const ATTENTION_KINDS = [
  { value: "cross", label: "Cross-attention", title: "Decoder tokens attend to source tokens" },
  {
    value: "encoder",
    label: "Encoder self-attention",
    title: "Source tokens attend to source tokens",
  },
  {
    value: "decoder",
    label: "Decoder self-attention",
    title: "Decoder tokens attend to earlier decoder tokens",
  },
];
const AXES = /** @type {Record<string, string>} */ ({
  cross: "Rows: the target token that each query predicts. Columns: source tokens (keys).",
  encoder: "Rows: source tokens (queries). Columns: source tokens (keys).",
  decoder:
    "Rows: decoder input (queries). Columns: the same tokens (keys). Masked positions are hatched.",
});
// Architectures with one stack process source and output as one sequence. The keys are those of
// architectures or of attention kinds.
const AXES_OF_ONE_STACK = /** @type {Record<string, string>} */ ({
  encoder:
    "Rows and columns: the input positions. The model predicts the output at the same " +
    "positions; SOS marks added positions when the output is longer.",
  bert: "Rows and columns: the input tokens, then one SOS token for each output token to predict.",
  decoder:
    "Rows and columns: the input tokens, then the tokens generated so far. Masked positions are " +
    "hatched.",
});
/**
 * Describe the axes of an attention map.
 * @param {string} kind @param {boolean} isSingle whether the model has one stack
 * @param {string} [architecture]
 */
export const describeAxes = (kind, isSingle, architecture = "") =>
  isSingle ? (AXES_OF_ONE_STACK[architecture] ?? AXES_OF_ONE_STACK[kind]) : AXES[kind];
export const PART_NOT_LOADED = "This part of the page could not be loaded. Reload the page.";
