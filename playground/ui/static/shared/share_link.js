// A link to what the page shows that others can open.
import { request } from "./api.js";
import { store } from "./store.js";

/** Return the link. That to a run gives read-only access, if the server responds. */
export async function buildShareLink() {
  let subject = store.model.value ?? "";
  if (subject.startsWith("run:")) {
    const payload = { owner: store.owner.value, subject },
      // Without a share id, only this browser can open the link.
      { share_id: shareId } = await request("runs/details", payload).catch(() => ({}));
    if (shareId) subject = "watch:" + shareId;
  }
  return store.buildLink({ model: subject || null, input: store.sequence.value });
}
