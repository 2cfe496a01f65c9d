// What the modules of this tab share.
export const state = {
  subject: "",
  view: "table",
  owner: "",
  backgroundQueue: Promise.resolve(),
  localPathsAllowed: false,
  benchmarkForm: undefined,
  benchmarkJob: undefined, // the elements, and the active job
  architecturesView: undefined,
};
