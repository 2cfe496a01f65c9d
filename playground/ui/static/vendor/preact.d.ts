// The types of preact.js, for `npm run types`.
import type { VNode } from "preact";
export { Fragment, createContext, h, render } from "preact";
export {
  useContext,
  useEffect,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "preact/hooks";
export {
  batch,
  computed,
  effect,
  signal,
  untracked,
  useComputed,
  useSignal,
  useSignalEffect,
} from "@preact/signals";
export type { ReadonlySignal, Signal } from "@preact/signals";
export type { ComponentChildren, VNode } from "preact";
/** Build elements from a tagged template. */
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
