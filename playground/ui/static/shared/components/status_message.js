import { Button } from "./buttons.js";
import { html } from "../../vendor/preact.js";

const MARKS = { info: "", success: "✓ ", error: "" };

/**
 * A message below the control that it is about. Screen readers read it when it changes.
 * @param {{ text: string, kind?: "info" | "success" | "error", onRetry?: (() => void) | null,
 *   class?: string }} props
 */
export function StatusMessage({ text, kind = "info", onRetry, class: className = "" }) {
  // The element stays in the document without a text, because a live region reports only changes.
  return html`<p
    class=${`pg-status ${kind} ${className}`}
    role=${kind === "error" ? "alert" : "status"}
  >
    ${text && MARKS[kind]}${text}${" "}
    ${text && onRetry && html`<${Button} onClick=${onRetry}>Retry<//>`}
  </p>`;
}
