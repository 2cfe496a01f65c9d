// What the modules of this tab share.
export const state = {
  subject: "",
  step: null,
  text: "3 1 4 1 5",
  view: "attention",
  owner: "",
  runs: [],
  checkpoints: [],
  weightSteps: [],
  resultByView: {}, // view -> its latest data
};
