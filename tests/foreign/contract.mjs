// What the published AsyncAPI document says: which messages a subject carries, how they are answered, and
// whether one fits. It speaks from the point of view of grns: what grns receives we send, and what it sends we hear.

import { fromFile, Parser } from "@asyncapi/parser";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

/** What does not fit, and why. */
export class Unfit extends Error {}

export class Contract {
  /** How many messages of each name have been checked, and fitted. */
  counted = { sent: {}, heard: {}, answered: {} };

  #operations = [];
  #ajv = new Ajv({ strict: true, allErrors: true });
  #checks = new Map();

  /** Read the document; whatever the parser says of it, a hint included, ends us. */
  static async read(file) {
    const { document, diagnostics } = await fromFile(new Parser(), file).parse();
    const complaints = diagnostics.map(({ path, message }) => `${path.join("/")}: ${message}`);
    if (!document || complaints.length > 0) throw new Unfit(`${file}: ${complaints.join("; ")}`);
    return new Contract(document);
  }

  constructor(document) {
    addFormats(this.#ajv);
    this.#ajv.addVocabulary(["x-parser-schema-id"]); // the parser leaves its marks in what it has read
    for (const message of document.components().messages().all()) this.#learn(message);
    for (const operation of document.operations().all()) {
      for (const channel of operation.channels().all()) {
        this.#operations.push({
          action: operation.action(),
          ...matcher(channel.address()),
          messages: operation.messages().all(),
          answers: operation.reply()?.messages().all() ?? [],
        });
      }
    }
  }

  /** Return the bytes of a message that we may send on a subject. */
  outgoing(subject, message) {
    const body = JSON.stringify(message);
    this.#fits("sent", this.#find("receive", subject).messages, subject, {}, body);
    return body;
  }

  /** Say what is wrong with a message that is to be sent; null where it fits. */
  complaint(subject, body) {
    try {
      one(this.#judge(this.#find("receive", subject).messages, {}, body), subject);
      return null;
    } catch (error) {
      if (error instanceof Unfit) return error.message;
      throw error;
    }
  }

  /** Return what grns has said on a subject. */
  incoming(subject, headers, body) {
    return this.#fits("heard", this.#find("send", subject).messages, subject, headers, body);
  }

  /** Return the answer to what was sent on a subject; its content type says of which kinds it may be. */
  answer(subject, headers, body) {
    const { answers } = this.#find("receive", subject);
    const possible = answers.filter((message) => message.contentType() === headers["Content-Type"]);
    return this.#fits("answered", possible, `the answer to ${subject}`, headers, body);
  }

  #learn(message) {
    const check = (schema) => this.#ajv.compile(schema.schema ?? schema); // payloads name their dialect
    this.#checks.set(message.name(), {
      payload: check(message.payload().json()),
      headers: check(message.headers()?.json() ?? {}),
    });
  }

  #find(action, subject) {
    const found = this.#operations.filter((each) => each.action === action && each.pattern.test(subject));
    if (found.length === 0) throw new Unfit(`${subject}: no operation is about it`);
    return found.sort((first, second) => first.names - second.names)[0]; // what is spelled out goes first
  }

  #fits(direction, messages, subject, headers, body) {
    const { name, said } = one(this.#judge(messages, headers, body), subject);
    this.counted[direction][name] = (this.counted[direction][name] ?? 0) + 1;
    return said;
  }

  /** Hold one text against messages; returns for each its name and what is wrong. */
  #judge(messages, headers, body) {
    let said;
    try {
      said = JSON.parse(body);
    } catch (error) {
      throw new Unfit(`no JSON: ${error.message}`);
    }
    return messages.map((message) => {
      const { payload, headers: others } = this.#checks.get(message.name());
      const faults = [payload(said), others(headers)].every(Boolean)
        ? ""
        : this.#ajv.errorsText([...(payload.errors ?? []), ...(others.errors ?? [])]);
      return { name: message.name(), said, faults };
    });
  }
}

/** Return the only one that fits. */
function one(judged, subject) {
  const fit = judged.filter(({ faults }) => faults === "");
  if (fit.length === 1) return fit[0];
  const reasons = judged.map(({ name, faults }) => `${name}: ${faults || "it fits"}`);
  throw new Unfit(`${subject}: ${reasons.join("; ") || "no message is like it"}`);
}

/** Turn an address into what finds its subjects; a name in it stands for one word. */
function matcher(address) {
  const words = address.split(".");
  const patterns = words.map((word) => word.replace(/\{\w+\}/, "[^.]+"));
  return {
    pattern: new RegExp(`^${patterns.join("[.]")}$`),
    names: words.filter((word) => word.includes("{")).length,
  };
}
