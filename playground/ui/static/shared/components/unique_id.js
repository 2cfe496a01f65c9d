import { useState } from "../../vendor/preact.js";

let count = 0;

/** An id of one component. Preact's own ids repeat when several tabs are in one page. */
export function useUniqueId() {
  const [id] = useState(() => `pg-${++count}`);
  return id;
}
