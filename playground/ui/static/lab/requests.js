import { NO_RESPONSE, request } from "../shared/api.js";
import { createStorage } from "../shared/common.js";
import { readLinkState } from "../shared/links.js";
import { state } from "./state.js";
import { $ } from "./view.js";

export const { storedState, saveLocal, loadLocal } = createStorage("transformer-playground-lab");
// an experiment from a link: the form is filled in, and nothing trains before Start is pressed
export const linkState = readLinkState("lab");
export async function requestExperiments(name, payload = {}, timeoutMs = 20000) {
  try {
    return await request(name, { owner: state.owner, ...payload }, timeoutMs);
  } catch (error) {
    return { error: NO_RESPONSE, lost: true };
  }
}

export function initRequests() {
  if (Array.isArray(linkState.grid)) {
    storedState.own = { ...linkState, grid: linkState.grid.filter(Array.isArray) };
    $(".own").open = true;
  }
}
