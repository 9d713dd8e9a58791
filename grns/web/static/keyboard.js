"use strict";
// Keys: / to the filter, j and k along the rows, x selects, r redrives, Enter opens, ? helps.
(() => {
  let here = null;

  const rows = () => [...document.querySelectorAll("[data-rows] [data-row]")];
  const isTyping = (target) => target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select") !== null;

  function place() {
    return here === null ? -1 : rows().findIndex((row) => row === here || (row.id && row.id === here.id));
  }

  function go(step) {
    const found = rows();
    if (found.length === 0) return;
    const wanted = Math.min(Math.max(place() + step, 0), found.length - 1);
    for (const row of found) row.classList.remove("here");
    here = found[wanted];
    here.classList.add("here");
    here.scrollIntoView({ block: "nearest" });
    (here.querySelector("[data-open]") || here.querySelector("a, button, input"))?.focus({ preventScroll: true });
  }

  // What a key means on this page: in its main part first.
  function marked(key) {
    const found = [...document.querySelectorAll(`[data-key="${key}"]`)];
    return found.find((one) => one.closest("main")) || found[0] || null;
  }

  function toggle(isChosen) {
    const box = rows()[place()]?.querySelector("input[type=checkbox]");
    if (!box || (isChosen === true && box.checked)) return;
    box.checked = !box.checked;
    box.dispatchEvent(new Event("change", { bubbles: true }));
  }

  function redrive() {
    const button = marked("r");
    if (!button) return;
    const form = button.closest("[data-selection]");
    if (form && !form.querySelector("input[name=id]:checked")) toggle(true);
    if (!form || form.querySelector("input[name=id]:checked")) button.click();
  }

  const actions = {
    "/": () => { const field = marked("/"); field?.focus(); field?.select?.(); },
    "j": () => go(1),
    "k": () => go(-1),
    "x": () => toggle(),
    "r": redrive,
    "?": () => marked("?")?.click(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape") { event.target.blur?.(); return; }
    if (isTyping(event.target) || !(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });

  // Rows that were brought up to date are still where one was.
  document.addEventListener("htmx:after:swap", () => rows()[place()]?.classList.add("here"));
})();
