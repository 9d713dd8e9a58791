"use strict";
// Refreshes a page unless that would disturb its user: rows are selected, a field is edited, details are open, the tab is
// hidden, or the user paused it.
(() => {
  const status = document.querySelector("[data-refresh]");
  const refresher = document.getElementById("auto-refresh");
  if (!status) return;
  if (!refresher) { status.textContent = "This page does not refresh"; return; }

  let selected = 0, isPaused = false, problem = "";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "small";
  const text = document.createElement("span");
  status.replaceChildren(text, " ", button);

  function blocker() {
    if (isPaused) return "paused";
    if (selected > 0) return `${selected} selected`;
    if (document.querySelector("main details[data-keep][open]")) return "details are open";
    const field = document.activeElement;
    if (field && field.matches("main input:not([type=checkbox]), main textarea, main select")) return "a field is being edited";
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && document.querySelector("main").contains(selection.anchorNode)) return "text is selected";
    return document.hidden ? "the tab is hidden" : "";
  }

  function update() {
    const reason = blocker();
    const shown = reason ? `Not refreshing: ${reason}` : problem || "Refreshing";
    if (text.textContent !== shown) text.textContent = shown;
    button.textContent = isPaused ? "Resume refresh" : "Pause refresh";
    button.setAttribute("aria-pressed", String(isPaused));
  }

  button.addEventListener("click", () => { isPaused = !isPaused; update(); });
  document.addEventListener("grns:selection", (event) => { selected = event.detail; update(); });
  for (const name of ["focusin", "focusout", "toggle", "visibilitychange", "selectionchange"]) {
    document.addEventListener(name, () => setTimeout(update), true);
  }
  const isRefresh = (event) => event.detail?.ctx?.sourceElement === refresher;
  document.addEventListener("htmx:before:request", (event) => {
    if (isRefresh(event) && blocker()) event.preventDefault();
  });
  // A response does not undo what the user began while the request was under way.
  document.addEventListener("htmx:before:swap", (event) => {
    if (isRefresh(event) && blocker()) event.preventDefault();
  });
  document.addEventListener("htmx:after:request", (event) => {
    if (!isRefresh(event)) return;
    const code = event.detail.ctx.response.status;
    problem = code >= 400 ? `The server answers ${code}: retrying` : "";
    update();
  });
  document.addEventListener("htmx:error", (event) => {
    if (!isRefresh(event)) return;
    problem = "The server does not answer: retrying";
    update();
  });
  update();
})();
