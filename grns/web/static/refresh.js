"use strict";
// Pages ask for themselves again, but never under somebody's hands: not while something is selected, written in or
// unfolded, not while nobody looks, and not while it was paused.
(() => {
  const told = document.querySelector("[data-refresh]");
  const pulse = document.getElementById("pulse");
  if (!told) return;
  if (!pulse) { told.textContent = "This page does not refresh"; return; }

  let chosen = 0, isPaused = false, trouble = "";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "small";
  const words = document.createElement("span");
  told.replaceChildren(words, " ", button);

  function why() {
    if (isPaused) return "paused";
    if (chosen > 0) return `${chosen} selected`;
    if (document.querySelector("main details[data-keep][open]")) return "something is unfolded";
    const field = document.activeElement;
    if (field && field.matches("main input:not([type=checkbox]), main textarea, main select")) return "a field is written in";
    const marked = document.getSelection();
    if (marked && !marked.isCollapsed && document.querySelector("main").contains(marked.anchorNode)) return "text is marked";
    return document.hidden ? "nobody looks" : "";
  }

  function tell() {
    const reason = why();
    const said = reason ? `Not refreshing: ${reason}` : trouble || "Refreshing";
    if (words.textContent !== said) words.textContent = said;
    button.textContent = isPaused ? "Go on" : "Pause";
    button.setAttribute("aria-pressed", String(isPaused));
  }

  button.addEventListener("click", () => { isPaused = !isPaused; tell(); });
  document.addEventListener("grns:selection", (event) => { chosen = event.detail; tell(); });
  for (const name of ["focusin", "focusout", "toggle", "visibilitychange", "selectionchange"]) {
    document.addEventListener(name, () => setTimeout(tell), true);
  }
  const isOurs = (event) => event.detail?.ctx?.sourceElement === pulse;
  document.addEventListener("htmx:before:request", (event) => {
    if (isOurs(event) && why()) event.preventDefault();
  });
  // What somebody has begun while an answer was under way is not undone by it.
  document.addEventListener("htmx:before:swap", (event) => {
    if (isOurs(event) && why()) event.preventDefault();
  });
  document.addEventListener("htmx:after:request", (event) => {
    if (!isOurs(event)) return;
    const status = event.detail.ctx.response.status;
    trouble = status >= 400 ? `The server answers ${status}: trying again` : "";
    tell();
  });
  document.addEventListener("htmx:error", (event) => {
    if (!isOurs(event)) return;
    trouble = "The server does not answer: trying again";
    tell();
  });
  tell();
})();
