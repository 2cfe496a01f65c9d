// The types of qr.js, for `npm run types`.
export { encodeQR } from "qr";
