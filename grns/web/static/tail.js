"use strict";
// Goes on telling events as they come. All that comes from elsewhere is put in as text.
(() => {
  const MOST_ROWS = 500;
  const AGAIN_MILLISECONDS = 1000;
  const body = document.querySelector("[data-stream]");
  if (!body) return;
  const button = document.querySelector("[data-tail-pause]");
  const told = document.querySelector("[data-tail-state]");
  const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;
  const waiting = [];
  const clock = new Intl.DateTimeFormat("en-GB", {
    timeZone: body.dataset.zoneOf, month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
  let isPaused = false, last = null;

  // As the server writes it: nothing stays hidden.
  const visible = (text) => text.replace(HIDDEN, (letter) => "\u200c\u200d\n\t".includes(letter)
    ? letter : `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

  function cell(kind, text, className = "", label = "") {
    const found = document.createElement(kind);
    found.textContent = visible(String(text ?? ""));
    if (className) found.className = className;
    if (label) found.dataset.label = label;
    return found;
  }

  function brief(value) {
    if (typeof value === "string") return value;
    // An error, whose frames are long.
    return "class" in Object(value) && "message" in Object(value) ? `${value.class}: ${value.message}` : JSON.stringify(value);
  }

  function summary(payload) {
    const parts = Object.entries(payload).filter(([name, value]) => !["task_id", "actor"].includes(name) && value !== null)
      .map(([name, value]) => `${name}=${brief(value)}`);
    const text = parts.join(" ");
    return text.length <= 160 ? text : `${text.slice(0, 159)}…`;
  }

  function at(instant) {
    const found = document.createElement("td");
    const time = document.createElement("time");
    time.dateTime = time.title = instant;
    const part = Object.fromEntries(clock.formatToParts(new Date(instant)).map(({ type, value }) => [type, value]));
    time.textContent = `${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second}`;
    found.append(time);
    return found;
  }

  function row(event) {
    const found = document.createElement("tr");
    found.setAttribute("data-row", "");
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
    found.append(cell("td", event.seq, "n", "no."), at(event.created_at), kind, task,
      cell("td", event.attempt, "n", "attempt"), cell("td", event.actor, "", "by"), cell("td", summary(event.payload), "says"));
    return found;
  }

  function show() {
    const isBusy = isPaused || document.querySelector("[data-rows] tr.here") !== null && body.matches(":focus-within");
    if (!isBusy) {
      for (const event of waiting.splice(0)) body.prepend(row(event));
      while (body.rows.length > MOST_ROWS) body.rows[body.rows.length - 1].remove();
    } else if (waiting.length > MOST_ROWS) {
      waiting.splice(0, waiting.length - MOST_ROWS);
    }
    const more = waiting.length ? `, ${waiting.length} waiting` : "";
    tell(isPaused ? `Paused${more}` : isBusy ? `Waiting for you${more}` : "Following");
  }

  function tell(text) { if (told.textContent !== text) told.textContent = text; }

  function take(block) {
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
      blocks.forEach(take);
      show();
    }
  }

  async function run() {
    for (;;) {
      try { await follow(); } catch (error) { tell(`Not following (${error.message}): trying again`); }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MILLISECONDS));
    }
  }

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Go on" : "Pause";
    button.setAttribute("aria-pressed", String(isPaused));
    show();
  });
  run();
})();
