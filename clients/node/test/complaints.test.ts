// What users of other packages complain about, tried with this one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Mutex } from "../src/compat/redis-semaphore.js";
import Redlock, { ExecutionError } from "../src/compat/redlock.js";
import { createLocks, LockLostError } from "../src/index.js";
import { unhandled, until } from "./support/conditions.js";
import { LIBRARIES } from "./support/libraries.js";
import { TestServer } from "./support/servers.js";

const lease = 30_000;
const server = TestServer.forAll();
const client = () => new Redis(server.port, { lazyConnect: true });

for (const library of LIBRARIES) {
  const locks = () => createLocks(library.client(server.port));

  test(`extension_does_not_race_release: Budibase 18613, ${library.name}`, async () => {
    for (let n = 0; n < 100; n++) {
      const lock = await locks().acquire("race", { lease: 20_000, renew: true });
      const extended = lock.extend(lease).catch((error) => error);
      if (n % 2) await sleep(Math.random());
      await lock.release();
      const error = await extended;
      assert.ok(error === undefined || error instanceof LockLostError);
      assert.equal(await server.command("EXISTS", "race"), 0);
    }
  });

  test(`waiters_do_not_poll, ${library.name}`, async () => {
    const first = await locks().acquire("polling", { lease });
    const waits = Array.from({ length: 100 }, () => locks().using("polling", { lease }, () => {}));
    await until(async () => (await server.info("polling", "waiters")) === 1, "a waiter");
    await sleep(100);
    const before = await server.calls();
    await sleep(1_000);
    assert.ok((await server.calls()) - before < 10);
    await first.release();
    await Promise.all(waits);
  });
}

test("lost_lock_is_no_unhandled_rejection: redis-semaphore 24", async () => {
  const mutex = new Mutex(client(), "lost");
  await mutex.acquire();
  await server.command("DEL", "mutex:lost");
  await until(() => !mutex.isAcquired, "the loss");
  assert.deepEqual(unhandled, []);
});

test("sets_of_keys_are_taken_whole_or_not: medusa 16285", async () => {
  const redlock = new Redlock([client()], { retryCount: 0 });
  await using _lock = await createLocks(client()).acquire("set:b", { lease });
  await assert.rejects(redlock.acquire(["set:a", "set:b", "set:c"], lease), ExecutionError);
  assert.equal(await server.command("EXISTS", "set:a", "set:c"), 0);
  const tasks = Array.from({ length: 50 }, (_, n) => {
    const [one, other] = n % 2 ? ["x", "y"] : ["y", "x"];
    return new Redlock([client()], { retryCount: -1 }).using([`${one}`, `${other}`], lease, async () => sleep(1));
  });
  await Promise.all(tasks);
  assert.equal(await server.command("EXISTS", "x", "y"), 0);
});
