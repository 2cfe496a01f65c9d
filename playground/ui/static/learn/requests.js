import { NO_RESPONSE, request } from "../shared/api.js";
import { createStorage } from "../shared/common.js";
import { state } from "./state.js";

export const { storedState, saveLocal } = createStorage("transformer-playground-learn");
export async function requestLesson(name, payload = {}, timeoutMs = 20000) {
  try {
    return await request("lessons/" + name, { owner: state.owner, ...payload }, timeoutMs);
  } catch (error) {
    return { error: NO_RESPONSE, lost: true };
  }
}
