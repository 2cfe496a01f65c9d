// Texts that several views show.
const EXACT_MATCH_TITLE = "Exact match on held-out sequences";
const TOKEN_HINT = "Click a row of the map to select the token";
// The options of a control: value, label, title.
const ATTENTION_KIND_OPTIONS = [
  ["cross", "cross", "Generated tokens attend to source tokens"],
  ["encoder", "encoder", "Source tokens attend to source tokens"],
  ["decoder", "decoder", "Generated tokens attend to earlier generated tokens"],
];
const ENCODER_CAPTION = "Rows: source tokens (queries). Columns: source tokens (keys).";
// Architectures with one stack process source and output as one sequence. The keys are those of
// architectures or of attention kinds.
const SINGLE_STACK_CAPTIONS = {
  encoder:
    "Rows and columns: the input positions, where the output is predicted (SOS: blanks if " +
    "it is longer).",
  bert: "Rows and columns: the input tokens, then the blanks (SOS) for the output.",
  decoder:
    "Rows and columns: the input tokens, then the tokens generated so far. Masked positions are " +
    "hatched.",
};
