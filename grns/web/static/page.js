"use strict";
// Small things of every page: what is selected, what is copied, the zone of local times.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  for (const field of all("[data-zone]")) {
    field.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
  }

  function count() {
    const chosen = all("[data-selection] input[name=id]:checked").length;
    for (const place of all("[data-selected]")) place.textContent = `${chosen} selected`;
    const rows = all("[data-selection] input[name=id]");
    for (const box of all("[data-all]")) {
      box.checked = rows.length > 0 && chosen === rows.length;
      box.indeterminate = chosen > 0 && chosen < rows.length;
    }
    document.dispatchEvent(new CustomEvent("grns:selection", { detail: chosen }));
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) {
      for (const box of all("[data-selection] input[name=id]")) box.checked = event.target.checked;
    }
    if (event.target.matches("[data-all], [data-selection] input[name=id]")) count();
  });
  document.addEventListener("htmx:after:swap", count);
  window.addEventListener("pageshow", count);

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button || !navigator.clipboard) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });

  // In a narrow window the menu is longer than its line.
  for (const link of all(".top nav [aria-current], .tabs [aria-current]")) {
    const line = link.closest("ul");
    line.scrollLeft = link.offsetLeft - (line.clientWidth - link.offsetWidth) / 2;
  }

  // One menu at a time, and none once one looks elsewhere.
  document.addEventListener("click", (event) => {
    for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
})();
