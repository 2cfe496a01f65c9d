// What the modules of this tab share.
export const state = {
  // The open model and its state.
  owner: "",
  modelRef: "",
  linkedModel: "", // the model of the link that opened the page
  defaultModel: "",
  pollGeneration: 0,
  isFresh: true,
  metricCurve: undefined,
  evaluations: undefined,
  pointCount: undefined,
  lastResponse: {},
  status: "opening",
  probeInfo: undefined,
  latestSnapshot: undefined,
  scores: undefined,
  weightSteps: [],
  displayedSnapshot: null,
  viewedStep: null, // the displayed snapshot, and the earlier step selected on the timeline
  selectedKind: "cross",
  selectedHead: [0, 0],
  selectedBlock: "", // the block that the diagram explains, instead of the selected head
  typedPass: null, // the forward pass of a sequence that the user has typed
  selectedMetric: "loss",
  hoverStep: null,
  hoverCell: null, // [row, column] of the map of the selected head
  hoverRow: null, // row of the diagram
  predictRequestId: 0,
  predictedAt: 0,
  runs: [],
  serverNow: 0,
  maxActiveRuns: 0,
  renderedCheckpoints: "",
};
