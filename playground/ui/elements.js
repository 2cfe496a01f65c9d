// ---------------------------------------------------------------- elements, made and saved: what Inspect and Compare build their views of
function el(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
// Words for those who listen.
const unseen = (text) => el("span", { className: "unseen", textContent: text });
// Buttons of which one is pressed.
function choice(options, chosen, choose, label) {
  const box = el("span", { className: "choice" });
  box.setAttribute("role", "group"); box.setAttribute("aria-label", label);
  for (const [value, text, title] of options) {
    const button = el("button", { type: "button", textContent: text, title: title || "" });
    button.setAttribute("aria-pressed", String(value === chosen)); button.dataset.value = value;
    button.addEventListener("click", () => { press(box, value); choose(value); });
    box.append(button);
  }
  return box;
}
function press(box, value) { for (const each of box.children) each.setAttribute("aria-pressed", String(each.dataset.value === String(value))); }
function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link); link.click(); link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function csvOf(rows) {
  if (!rows.length) return "";
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  // A cell that begins like a formula would be one in a spreadsheet.
  const cell = (value) => { const text = value === null || value === undefined ? "" : String(value); return /^[=+@\t]|^-[^\d.]/.test(text) ? '"\'' + text.replaceAll('"', '""') + '"' : /[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text; };
  return [keys.join(), ...rows.map((row) => keys.map((key) => cell(row[key])).join())].join("\n") + "\n";
}
