// The first script of the page. It runs before the first paint, so that neither another theme nor
// what an embedded view hides appears.
{
  const root = document.documentElement,
    query = new URLSearchParams(location.search),
    view = query.get("embed") ?? "";
  if (["learning", "attention", "try", "samples", "inspect"].includes(view))
    root.dataset.embed = view;
  let theme = query.get("__theme"), // Hugging Face adds it to the address of a Space
    model = query.get("model");
  try {
    theme ??= localStorage.getItem("transformer-playground-theme");
    model ??= localStorage.getItem("transformer-playground-subject");
  } catch {
    // the browser denies storage
  }
  // The picture of the first paint is that of the first model in the first tab.
  root.classList.toggle(
    "without-first-view",
    ["embed", "watch", "learn", "bug", "class"].some((name) => query.has(name)) ||
      (query.get("tab") ?? "train") !== "train" ||
      !["checkpoint:reverse", "reverse"].includes(model ?? "reverse"),
  );
  const isDark = ["light", "dark"].includes(theme ?? "")
    ? theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.classList.toggle("dark", isDark);
  // A click on a tab before the modules are loaded opens it then.
  addEventListener("click", ({ target }) => {
    const tab = target instanceof Element && target.closest("[role=tab]");
    if (tab) root.dataset.tab = tab.id.replace("tab-", "");
  });
}
