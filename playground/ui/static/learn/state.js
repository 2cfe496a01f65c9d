// What the modules of this tab share.
export const state = {
  owner: "",
  catalog: null,
  currentSection: "tour",
};
