// Graphile Worker's side, run with its own packages: `fill URL ROWS PAYLOAD` makes jobs, `work URL` runs them.
//
// Its page on performance recommends batching for high throughput; the values are those with which it was
// measured there: 24 jobs at once, a local queue of 500, completions gathered for as long as they keep coming.

import { createRequire } from "node:module";

// The packages are where the program was started, not beside this file.
const { resolve } = createRequire(`${process.cwd()}/`);
const { makeWorkerUtils, run } = await import(resolve("graphile-worker"));

const CONCURRENCY = 24;
const LOCAL_QUEUE = 500;
const PART = 10_000;

/** Make its tables, and jobs in them. */
async function fill(connectionString, rows, payload) {
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  const job = { identifier: "noop", payload: JSON.parse(payload) };
  for (let made = 0; made < Number(rows); made += PART) {
    await utils.addJobs(Array(Math.min(PART, Number(rows) - made)).fill(job));
  }
  await utils.release();
}

/** Run one worker until it is ended. */
async function work(connectionString) {
  const worker = {
    connectionString,
    concurrentJobs: CONCURRENCY,
    maxPoolSize: CONCURRENCY + 1,
    localQueue: { size: LOCAL_QUEUE },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  };
  const runner = await run({ preset: { worker }, taskList: { noop: () => {} } });
  await runner.promise;
}

const [command, ...rest] = process.argv.slice(2);
await { fill, work }[command](...rest);
