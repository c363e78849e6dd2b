// The cases of clients/vectors, which all packages share: words.json, and the transcripts.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { ServerError } from "../src/errors.js";
import { checkOptions, DEFAULT_LEASE_MS, MAX_COUNT, MAX_LEASE_MS, MIN_SESSION_MS } from "../src/options.js";
import { MAX_TOGETHER } from "../src/queue.js";
import { asReply, isNotHeld, isPassing } from "../src/replies.js";
import {
  LAST_PAUSE_MS,
  LATE,
  MAX_BLOCK_MS,
  MAX_GRACE_MS,
  OUTAGE_MS,
  RENEWALS,
  RETRY_RELEASE_MS,
  Request,
  SILENCE_MS,
} from "../src/request.js";
import { SCRIPTS_MS, Server } from "../src/server.js";
import { channelOf, counterOf } from "../src/slots.js";
import { labelOf } from "../src/watch.js";

// biome-ignore lint/suspicious/noExplicitAny: the file describes itself.
type Case = any;
const vectors = fileURLToPath(new URL("../../../vectors", import.meta.url));
const cases: Record<string, Case> = JSON.parse(readFileSync(`${vectors}/words.json`, "utf8"));
const each = (part: string, check: (one: Case) => unknown) =>
  test(`${part}_are_those_of_the_family`, async (t) => {
    for (const one of cases[part]) await t.test(JSON.stringify(one), async () => void (await check(one)));
  });

/** Options may have any order. */
const sorted = (words: readonly string[]) => [...words.slice(0, 3), ...words.slice(3).sort()];

each("commands", async ({ send, lock, lease_ms, wait_ms, channel, words }) => {
  let sent: readonly string[] = [];
  const note = async (_: string, command: { words: readonly string[] }) => {
    sent = command.words;
    return 1;
  };
  const server = { ask: note, driver: {} } as unknown as Server;
  const { kind, permits, session = false, max_waiters: maxWaiters } = lock;
  const form = { reentrant: kind === "reentrant", shared: kind === "shared" };
  const request = new Request(
    server,
    "",
    "door",
    { lease: lock.lease_ms, ...form, permits, maxWaiters, session },
    "t:1",
  );
  const sends: Record<string, () => Promise<unknown>> = {
    acquire: () => request.take(),
    wait: () => note("door", request.join(wait_ms, channel)),
    release: () => request.free(),
    extend: () => request.setLease(lease_ms),
    fence: () => request.fence(),
  };
  await sends[send]?.();
  assert.deepEqual(sorted(sent), sorted(words));
});

each("channels", ({ name, cluster, channel }) => {
  assert.equal(channelOf("ID", cluster ? name : undefined), channel);
});

each("counters", ({ name, cluster, counter }) => {
  if (counter === null) assert.throws(() => counterOf(name, cluster), RangeError);
  else assert.equal(counterOf(name, cluster), counter);
});

each("arguments", ({ lock, valid }) => {
  const { name, lease_ms: lease, wait_ms: wait, max_waiters: maxWaiters, ...others } = lock;
  const check = () => checkOptions(name, { lease, wait, maxWaiters, ...others });
  if (valid) check();
  else assert.throws(check, (error) => error instanceof RangeError || error instanceof TypeError);
});

each("errors", ({ text, class: expected }) => {
  const error = asReply(new Error(text)) as ServerError;
  const named: Record<string, string> = { QUEUEFULL: "full", UNKNOWN: "no module", NOSUBSCRIBER: "no channel" };
  const found = isNotHeld(error) ? "lost" : isPassing(error) ? "passing" : (named[error.code] ?? "server");
  assert.equal(found, expected);
});

each("messages", ({ text, event, token }) => {
  const server = Server.of({ id: "vectors", open: () => Promise.reject() });
  const events: string[] = [];
  server.waits.set(token, { wake: (name) => events.push(name) });
  server.message(text);
  assert.deepEqual(events, [event]);
});

each("labels", ({ token, label }) => {
  assert.equal(labelOf(token), label);
});

test("numbers_are_those_of_the_family", () => {
  assert.deepEqual(cases.numbers, {
    default_lease_ms: DEFAULT_LEASE_MS,
    min_lease_ms: 1,
    max_lease_ms: MAX_LEASE_MS,
    min_session_lease_ms: MIN_SESSION_MS,
    max_grace_ms: MAX_GRACE_MS,
    max_block_ms: MAX_BLOCK_MS,
    silence_ms: SILENCE_MS,
    outage_ms: OUTAGE_MS,
    scripts_ms: SCRIPTS_MS,
    max_poll_ms: LAST_PAUSE_MS,
    release_again_ms: RETRY_RELEASE_MS,
    max_permits: MAX_COUNT,
    shares_under_way: MAX_TOGETHER,
    late_part: LATE,
    renewals: RENEWALS,
  });
});

test("transcripts_are_played", () => {
  const driver = fileURLToPath(new URL("./programs/driver.js", import.meta.url));
  const played = spawnSync("python3", [`${vectors}/player.py`, "--", process.execPath, driver], { encoding: "utf8" });
  assert.equal(played.status, 0, played.stdout + played.stderr);
});
