// A client of grns that knows NATS, and of grns what `schemas/` says.
//
//     node client.mjs URL ASYNCAPI TASK_ID...
//
// It submits and cancels tasks by request, asks for things that nobody can have, and has its own tasks and the
// named ones run through the front door. It writes a line of JSON about that; and another one, once it has heard
// how all of them have ended. Every message is checked, both ways: the first that does not fit ends it.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Contract } from "./contract.mjs";

const SUBMIT = "req.task.submit.v1";
const CANCEL = "req.task.cancel.v1";
const FRONT_DOOR = "cmd.task.execute.v1";
const FOLLOWED = ["evt.>", "dlq.>"];
const LIMIT_MS = 40_000;
// Nobody serves it: its tasks stay where they are until they are cancelled.
const NOBODY = "nobody";

const [url, file, ...given] = process.argv.slice(2);
const contract = await Contract.read(file);
const place = new URL(url);
const nats = await connect({ servers: place.host, token: place.username });
const heard = { plain: [], stream: [] };
const followers = await follow();

const asked = await submitAndCancel();
const refused = await askForWhatCannotBe();
const executed = await execute([...given, asked.ran, asked.retried, asked.died]);
say({ asked, refused, executed });

await Promise.race([everythingEnds(), Promise.all(followers)]);
say({ ...heard, counted: contract.counted });
await nats.close();

// ------------------------------------------------------------------ what is asked for

function message(kind, payload, changes = {}) {
  return {
    schema_version: "v1",
    message_id: randomUUID(),
    trace_id: "tr-8f678c2a",
    causation_id: null,
    kind,
    emitted_at: new Date().toISOString(),
    payload,
    ...changes,
  };
}

function submission(payload, changes) {
  return message("cmd.task.submit", { task_type: "noop", ...payload }, changes);
}

function cancellation(taskId) {
  return message("cmd.task.cancel", { task_id: taskId, reason: "not needed" });
}

/** Send what fits, and return the task with the word that tells what became of it. */
async function ask(subject, wanted) {
  const { headers, said } = await request(subject, contract.outgoing(subject, wanted));
  if (said.code) throw new Error(`${subject}: ${said.code}: ${said.detail}`);
  return { word: headers["Grns-Answer"], task: said };
}

async function request(subject, body) {
  const answer = await nats.request(subject, body, { timeout: LIMIT_MS });
  const headers = headersOf(answer);
  return { headers, said: contract.answer(subject, headers, answer.string()) };
}

async function submitAndCancel() {
  const first = submission({ payload: { url: "https://example.org" }, priority: 1 });
  const created = await ask(SUBMIT, first);
  const again = await ask(SUBMIT, first);
  const retried = await ask(SUBMIT, submission({ task_type: "fail_once", max_attempts: 3 }));
  const died = await ask(SUBMIT, submission({ task_type: "fail_once", max_attempts: 1 }));
  const waiting = await ask(SUBMIT, submission({ agent_type: NOBODY, delay_seconds: 3600 }));
  const cancelled = await ask(CANCEL, cancellation(waiting.task.id));
  const elsewhere = await ask(`${SUBMIT}.acme`, submission({ agent_type: NOBODY }));
  const cancelledThere = await ask(`${CANCEL}.acme`, cancellation(elsewhere.task.id));
  return {
    ran: created.task.id,
    retried: retried.task.id,
    died: died.task.id,
    cancelled: waiting.task.id,
    cancelled_elsewhere: elsewhere.task.id,
    words: [created, again, retried, died, waiting, cancelled, elsewhere, cancelledThere].map((one) => one.word),
    statuses: [cancelled, cancelledThere].map(({ task }) => task.status),
    is_same: again.task.id === created.task.id,
  };
}

/** Ask for what is refused. The schemas tell of most of it beforehand: `is_told` says of which. */
async function askForWhatCannotBe() {
  const { message_id: known, ...nameless } = submission({ agent_type: NOBODY });
  await ask(SUBMIT, { ...nameless, message_id: known });
  const wishes = {
    no_json: [SUBMIT, '{"schema_version": "v1",'],
    no_id: [SUBMIT, nameless],
    no_type: [SUBMIT, message("cmd.task.submit", {})],
    no_such_priority: [SUBMIT, submission({ priority: 9 })],
    no_agents_name: [SUBMIT, submission({ agent_type: "instance" })],
    another_kind: [CANCEL, submission({})],
    another_workspace: [`${SUBMIT}.acme`, submission({ workspace: "default" })],
    no_such_task: [CANCEL, cancellation("gr-nobody-knows-it")],
    another_key: [SUBMIT, submission({ agent_type: NOBODY, idempotency_key: "k" }, { message_id: known })],
    two_of_one_id: [SUBMIT, submission({ agent_type: NOBODY, payload: { other: true } }, { message_id: known })],
  };
  const found = {};
  for (const [name, [subject, wish]] of Object.entries(wishes)) {
    const body = typeof wish === "string" ? wish : JSON.stringify(wish);
    const { headers, said } = await request(subject, body);
    found[name] = {
      is_told: contract.complaint(subject, body) !== null,
      content_type: headers["Content-Type"],
      code: said.code,
      status: said.status,
      header_code: headers["Nats-Service-Error"],
      header_status: headers["Nats-Service-Error-Code"],
    };
  }
  return found;
}

/** Have tasks run, by commands that the broker keeps; returns which message is about which task. */
async function execute(taskIds) {
  const found = {};
  for (const taskId of taskIds) {
    const command = message("cmd.task.execute", {
      task_id: taskId,
      target_agent_type: "worker",
      reason: "new_task",
    });
    const body = contract.outgoing(FRONT_DOOR, command);
    const kept = await jetstream(nats).publish(FRONT_DOOR, body, { msgID: command.message_id });
    if (kept.duplicate) throw new Error(`${command.message_id} was known`);
    found[taskId] = command.message_id;
  }
  return found;
}

// ------------------------------------------------------------------ what is heard

/** Follow both ways, and from the beginning; returns what breaks where something does not fit. */
async function follow() {
  const manager = await jetstreamManager(nats);
  const running = [];
  for (const subject of FOLLOWED) {
    running.push(listen(nats.subscribe(subject), heard.plain));
    const stream = await manager.streams.find(subject);
    const consumer = await jetstream(nats).consumers.get(stream, { filter_subjects: [subject] });
    running.push(listen(await consumer.consume(), heard.stream));
  }
  await nats.flush();
  return running;
}

async function listen(messages, into) {
  for await (const one of messages) {
    const headers = headersOf(one);
    const { kind, message_id, payload } = contract.incoming(one.subject, headers, one.string());
    into.push({
      subject: one.subject, kind, message_id, task_id: payload.task_id ?? null, version: headers["Grns-Version"],
    });
  }
}

async function everythingEnds() {
  const wanted = [
    ...given.map((taskId) => ["evt.task.completed", taskId]),
    ["evt.task.completed", asked.ran],
    ["evt.task.completed", asked.retried],
    ["evt.task.dead", asked.died],
    ["dlq.task.dead", asked.died],
    ["evt.task.cancelled", asked.cancelled],
    ["evt.task.cancelled", asked.cancelled_elsewhere],
  ];
  const deadline = Date.now() + LIMIT_MS;
  const missing = () =>
    Object.entries(heard).flatMap(([way, those]) =>
      wanted
        .filter(([kind, taskId]) => !those.some((one) => one.kind === kind && one.task_id === taskId))
        .map(([kind, taskId]) => `${way}: ${kind} of ${taskId}`),
    );
  while (missing().length > 0) {
    if (Date.now() > deadline) throw new Error(`not heard in time: ${missing().join(", ")}`);
    await sleep(20);
  }
}

function headersOf(said) {
  return Object.fromEntries((said.headers?.keys() ?? []).map((name) => [name, said.headers.get(name)]));
}

function say(document) {
  console.log(JSON.stringify(document));
}
