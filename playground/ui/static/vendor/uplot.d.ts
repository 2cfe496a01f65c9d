// The types of uplot.js, for `npm run types`.
export { default } from "uplot";
