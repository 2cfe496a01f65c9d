// Texts that several views show.
export const EXACT_MATCH_TITLE = "Exact match on held-out sequences";
export const TOKEN_HINT = "Click a row of the map to select the token";
// The options of a control: value, label, title.
export const ATTENTION_KIND_OPTIONS = [
  ["cross", "cross", "Decoder tokens attend to source tokens"],
  ["encoder", "encoder", "Source tokens attend to source tokens"],
  ["decoder", "decoder", "Decoder tokens attend to earlier decoder tokens"],
];
export const ENCODER_CAPTION = "Rows: source tokens (queries). Columns: source tokens (keys).";
// Architectures with one stack process source and output as one sequence. The keys are those of
// architectures or of attention kinds.
export const SINGLE_STACK_CAPTIONS = {
  encoder:
    "Rows and columns: the input positions. The model predicts the output at the same " +
    "positions; SOS marks added positions when the output is longer.",
  bert: "Rows and columns: the input tokens, then one SOS token for each output token to predict.",
  decoder:
    "Rows and columns: the input tokens, then the tokens generated so far. Masked positions are " +
    "hatched.",
};
