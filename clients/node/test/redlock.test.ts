import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock, { ExecutionError, ResourceLockedError } from "../src/compat/redlock.js";
import { withLease } from "./support/load.js";
import { freePort, TestServer } from "./support/servers.js";

const server = TestServer.forAll();
const redlock = (port = server.port) => new Redlock([new Redis(port, { lazyConnect: true })]);
const ONE_TRY = { retryCount: 0 };

/** Checks that a promise rejects with an error of Redlock, and returns its cause. */
async function refusal(promise: Promise<unknown>): Promise<Error> {
  const error = await promise.then(
    () => assert.fail("not rejected"),
    (reason) => reason,
  );
  assert.ok(error instanceof ExecutionError && error.cause instanceof Error, String(error));
  return error.cause;
}

const isLocked = async (promise: Promise<unknown>) =>
  assert.ok((await refusal(promise)) instanceof ResourceLockedError);

async function holders(names: string[]): Promise<unknown[]> {
  return Promise.all(names.map((name) => server.command("GET", name)));
}

test("duration_is_an_integer", async () => {
  const locks = redlock();
  for (const duration of [0.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    await assert.rejects(locks.acquire(["integer"], duration), /integer/);
    await assert.rejects(
      locks.using(["integer"], duration, async () => {}),
      /integer/,
    );
  }
  const lock = await locks.acquire(["integer"], 5_000);
  await assert.rejects(lock.extend(1_000.5), /integer/);
  await lock.release();
});

for (const names of [["single"], ["several:b", "several:a"]]) {
  test(`lock_is_acquired_extended_and_released[${names.length}]`, async () => {
    let began = Date.now();
    const lock = await redlock().acquire(names, 60_000);
    assert.deepEqual(lock.resources, names);
    const tokens = await holders(names);
    assert.equal(tokens[names.indexOf([...names].sort()[0] as string)], lock.value);
    assert.ok(tokens.every((token) => token !== null));
    assert.ok(lock.expiration > began + 59_000 && lock.expiration < Date.now() + 60_000);

    began = Date.now();
    const extended = await lock.extend(120_000);
    assert.equal(lock.expiration, 0);
    assert.equal(extended.value, lock.value);
    assert.ok(extended.expiration > began + 118_000 && extended.expiration < Date.now() + 120_000);
    for (const name of names) {
      const left = Number(await server.command("PTTL", name));
      assert.ok(left >= began + 119_990 - Date.now() && left <= 120_000, String(left));
    }

    await extended.release();
    assert.equal(extended.expiration, 0);
    assert.deepEqual(
      await holders(names),
      names.map(() => null),
    );
  });
}

test("absent_server_is_an_execution_error", async () => {
  const error = await refusal(redlock(await freePort()).acquire(["door"], 10_000, { retryCount: 1, retryDelay: 100 }));
  assert.ok(!(error instanceof ResourceLockedError), String(error));
});

test("lock_ends_with_its_lease", async () => {
  const locks = redlock();
  const first = await withLease(200, async (lease) => {
    const lock = await locks.acquire(["lease"], lease);
    await isLocked(locks.acquire(["lease"], lease, ONE_TRY));
    return lock;
  });
  const second = await locks.acquire(["lease"], 60_000, { retryCount: 300 });
  assert.notEqual(second.value, first.value);
  await refusal(first.release());
  await refusal(first.extend(10_000));
  assert.deepEqual(await holders(["lease"]), [second.value]);
  await second.release();
});

test("locks_exclude_each_other", async () => {
  const locks = redlock();
  const first = await locks.acquire(["door"], 10_000);
  await isLocked(locks.acquire(["door"], 10_000, ONE_TRY));
  await isLocked(redlock().acquire(["door"], 10_000, ONE_TRY));
  await first.release();
  await (await locks.acquire(["door"], 10_000, ONE_TRY)).release();
});

test("sets_that_overlap_are_acquired_whole_or_not_at_all", async () => {
  const locks = redlock();
  const first = await locks.acquire(["set:a", "set:b"], 10_000);
  await isLocked(locks.acquire(["set:b", "set:c"], 10_000, ONE_TRY));
  await isLocked(locks.acquire(["set:c", "set:b"], 10_000, ONE_TRY));
  assert.deepEqual(await holders(["set:c"]), [null]);
  await first.release();
  const second = await locks.acquire(["set:b", "set:c"], 10_000, ONE_TRY);
  const [a, b, c] = await holders(["set:a", "set:b", "set:c"]);
  assert.deepEqual([a, b], [null, second.value]);
  assert.notEqual(c, null);
  await second.release();
});

test("using_extends_and_releases", async () => {
  const use = (lease: number) =>
    redlock().using(["using"], lease, async (signal) => {
      const [value] = await holders(["using"]);
      await sleep(3 * lease);
      assert.equal(signal.aborted, false);
      assert.deepEqual(await holders(["using"]), [value]);
      return value;
    });
  const held = await withLease(300, use, server);
  assert.equal(typeof held, "string");
  assert.deepEqual(await holders(["using"]), [null]);
});

test("using_aborts_on_loss", async () => {
  const run = redlock().using(["lost"], 10_000, async (signal) => {
    await server.command("DEL", "lost");
    await assert.rejects(sleep(5_000, undefined, { signal }), { name: "AbortError" });
    assert.ok(signal.error instanceof Error);
  });
  await refusal(run);
});

test("using_excludes_others", async () => {
  const locks = redlock();
  let [inside, most] = [0, 0];
  const routine = async () => {
    most = Math.max(most, ++inside);
    await sleep(50);
    inside--;
  };
  await Promise.all([1, 2, 3].map(() => locks.using(["turns"], 30_000, routine)));
  assert.equal(most, 1);
});
