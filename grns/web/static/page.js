"use strict";
// On every page: selected rows, copy buttons, the zone of local times, menus; and what other scripts share.
(() => {
  const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;
  // Write hidden characters out, as the server does.
  document.grns = { visible: (text) => text.replace(HIDDEN, (char) => "\u200c\u200d\n\t".includes(char)
    ? char : `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`) };

  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  for (const field of all("[data-zone]")) {
    field.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
  }

  function count() {
    const selected = all("[data-selection] input[name=id]:checked").length;
    for (const place of all("[data-selected]")) place.textContent = `${selected} selected`;
    const rows = all("[data-selection] input[name=id]");
    for (const box of all("[data-all]")) {
      box.checked = rows.length > 0 && selected === rows.length;
      box.indeterminate = selected > 0 && selected < rows.length;
    }
    document.dispatchEvent(new CustomEvent("grns:selection", { detail: selected }));
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

  // In a narrow window, scroll the menu to the current page.
  for (const link of all(".top nav [aria-current], .tabs [aria-current]")) {
    const line = link.closest("ul");
    line.scrollLeft = link.offsetLeft - (line.clientWidth - link.offsetWidth) / 2;
  }

  // Close a menu on a click outside of it.
  document.addEventListener("click", (event) => {
    for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
})();
