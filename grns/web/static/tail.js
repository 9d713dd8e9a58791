"use strict";
// Adds new events to the page as they are streamed. Their data is inserted as text only.
(() => {
  const MAX_ROWS = 500;
  const RETRY_MILLISECONDS = 1000;
  const body = document.querySelector("[data-stream]");
  if (!body) return;
  const button = document.querySelector("[data-tail-pause]");
  const status = document.querySelector("[data-tail-state]");
  const { visible } = document.grns;
  const waiting = [];
  const clock = new Intl.DateTimeFormat("en-GB", {
    timeZone: body.dataset.zoneOf, month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
  let isPaused = false, last = null;

  function cell(kind, text, className = "", label = "") {
    const element = document.createElement(kind);
    element.textContent = visible(String(text ?? ""));
    if (className) element.className = className;
    if (label) element.dataset.label = label;
    return element;
  }

  function brief(value) {
    if (typeof value === "string") return value;
    // An error with long frames.
    return "class" in Object(value) && "message" in Object(value) ? `${value.class}: ${value.message}` : JSON.stringify(value);
  }

  function summary(payload) {
    const parts = Object.entries(payload).filter(([name, value]) => !["task_id", "actor"].includes(name) && value !== null)
      .map(([name, value]) => `${name}=${brief(value)}`);
    const text = parts.join(" ");
    return text.length <= 160 ? text : `${text.slice(0, 159)}…`;
  }

  function at(instant) {
    const element = document.createElement("td");
    const time = document.createElement("time");
    time.dateTime = time.title = instant;
    const part = Object.fromEntries(clock.formatToParts(new Date(instant)).map(({ type, value }) => [type, value]));
    time.textContent = `${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second}`;
    element.append(time);
    return element;
  }

  function row(event) {
    const element = document.createElement("tr");
    element.setAttribute("data-row", "");
    const task = cell("td", "");
    if (event.task_id) {
      const link = cell("a", event.task_id, "id");
      const [path, query] = body.dataset.task.split("?");
      link.href = `${path}${encodeURIComponent(event.task_id)}${query ? `?${query}` : ""}`;
      link.setAttribute("data-open", "");
      task.append(link);
    }
    const kind = cell("th", event.kind);
    kind.scope = "row";
    element.append(cell("td", event.seq, "n", "no."), at(event.created_at), kind, task,
      cell("td", event.attempt, "n", "attempt"), cell("td", event.actor, "", "by"), cell("td", summary(event.payload), "says"));
    return element;
  }

  function show() {
    const isBusy = isPaused || document.querySelector("[data-rows] tr.here") !== null && body.matches(":focus-within");
    if (!isBusy) {
      for (const event of waiting.splice(0)) body.prepend(row(event));
      while (body.rows.length > MAX_ROWS) body.rows[body.rows.length - 1].remove();
    } else if (waiting.length > MAX_ROWS) {
      waiting.splice(0, waiting.length - MAX_ROWS);
    }
    const more = waiting.length ? `, ${waiting.length} waiting` : "";
    setStatus(isPaused ? `Paused${more}` : isBusy ? `Waiting for your selection${more}` : "Following");
  }

  function setStatus(text) { if (status.textContent !== text) status.textContent = text; }

  function receive(block) {
    const fields = {};
    for (const line of block.split("\n")) {
      const place = line.indexOf(": ");
      if (place > 0) fields[line.slice(0, place)] = line.slice(place + 2);
    }
    if (fields.id) last = fields.id;
    if (fields.data) waiting.push(JSON.parse(fields.data));
  }

  async function follow() {
    const headers = { Accept: "text/event-stream", ...(last === null ? {} : { "Last-Event-ID": last }) };
    const answer = await fetch(body.dataset.stream, { headers, credentials: "same-origin", redirect: "manual" });
    if (answer.type === "opaqueredirect") { location.reload(); return; }
    if (!answer.ok) throw new Error(String(answer.status));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      blocks.forEach(receive);
      show();
    }
  }

  async function run() {
    for (;;) {
      try { await follow(); } catch (error) { setStatus(`Not following (${error.message}): retrying`); }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MILLISECONDS));
    }
  }

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Resume the stream" : "Pause the stream";
    button.setAttribute("aria-pressed", String(isPaused));
    show();
  });
  run();
})();
