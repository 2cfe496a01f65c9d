// Values that this browser keeps between visits. The page works without them: a browser may deny
// storage, or it may be full.

/** Return the stored text of a key; null without one. @param {string} key */
export function loadText(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** Null if missing or malformed. @param {string} key @returns {any} */
export function loadJson(key) {
  try {
    return JSON.parse(loadText(key) ?? "null");
  } catch {
    return null;
  }
}

/** Null removes it. Return success. @param {string} key @param {string | null} text */
export function saveText(key, text) {
  try {
    if (text === null) localStorage.removeItem(key);
    else localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

/** Store a value as JSON. @param {string} key @param {unknown} value */
export const saveJson = (key, value) => saveText(key, JSON.stringify(value));

/** The values that a tab stores, as one JSON object under `key`. @param {string} key */
export function createStorage(key) {
  const values = /** @type {Record<string, any>} */ (loadJson(key) ?? {});
  return {
    storedState: values,
    loadLocal: (/** @type {string} */ name) => values[name],
    saveLocal: (/** @type {string} */ name, /** @type {any} */ value) => {
      values[name] = value;
      saveJson(key, values);
    },
  };
}
