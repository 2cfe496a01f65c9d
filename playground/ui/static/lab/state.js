// What the modules of this tab share.
export const state = {
  // the id of the requested experiment, and the data of the displayed one
  open: "",
  details: null,
  owner: "",
  experiments: [],
  nextPollAt: 0,
  variableSettings: [],
  resultsView: undefined,
  hiddenVariants: new Set(),
};
