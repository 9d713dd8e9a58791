"use strict";
// Shows what a task streams, as it comes. It is inserted as text only.
(() => {
  const MAX_CHARACTERS = 200_000;
  const section = document.querySelector("[data-output]");
  if (!section) return;
  const text = section.querySelector("pre");
  const status = section.querySelector("[role=status]");
  const source = new EventSource(section.dataset.output);
  const { visible } = document.grns;

  function add(addition) {
    section.hidden = false;
    const isAtEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 8;
    text.append(visible(addition));
    if (text.childNodes.length > 500) text.normalize();
    const excess = text.textContent.length - 2 * MAX_CHARACTERS;
    if (excess > 0) text.textContent = text.textContent.slice(excess + MAX_CHARACTERS);
    if (isAtEnd) text.scrollTop = text.scrollHeight;
  }

  function lineStart() { return text.textContent === "" || text.textContent.endsWith("\n") ? "" : "\n"; }

  function on(name, act) { source.addEventListener(name, (event) => act(JSON.parse(event.data))); }

  on("state", (said) => { status.textContent = `${said.status}, attempt ${said.attempt}`; });
  on("chunk", (said) => {
    const isText = typeof said.data === "string";
    add(isText ? said.data : `${lineStart()}${said.kind}: ${JSON.stringify(said.data)}\n`);
  });
  on("reset", (said) => {
    text.textContent = "";
    status.textContent = `attempt ${said.attempt} begins anew`;
  });
  on("gap", (said) => add(`${lineStart()}[${said.lost ?? "some may be"} lost]\n`));
  on("end", (said) => {
    status.textContent = `${said.status}: no more comes`;
    source.close();
  });
  source.onerror = () => {
    status.textContent = source.readyState === EventSource.CLOSED ? "Not following: reload the page" : "Not following: retrying";
  };
})();
