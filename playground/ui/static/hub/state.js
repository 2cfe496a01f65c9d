// What the modules of this tab share.
export const state = {
  owner: "",
  session: { way: "", signed_in: false },
  account: null,
  runs: [],
  isPublishing: false,
  autoPublish: null,
};
