import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "../src/index.js";
import { until } from "./support/conditions.js";
import { LIBRARIES } from "./support/libraries.js";
import { TestServer } from "./support/servers.js";

/** How many waits are aborted with each library. */
const ABORTS = Number(process.env.ABORTS ?? 2_000);
const LOCKS = 20;

for (const library of LIBRARIES) {
  suite(library.name, () => {
    const server = TestServer.forAll();

    test("aborted_signal_sends_nothing", async () => {
      const locks = createLocks(library.client(server.port));
      const signal = AbortSignal.abort(new Error("before"));
      await assert.rejects(locks.acquire("door", { lease: 30_000, signal }), /before/);
      assert.equal(await server.connections(), 0);
    });

    test("abort_ends_wait_and_leaves_queue", async () => {
      const locks = createLocks(library.client(server.port));
      await using _lock = await locks.acquire("door", { lease: 30_000 });
      const stop = new AbortController();
      const waiting = locks.acquire("door", { lease: 30_000, signal: stop.signal });
      await until(async () => (await server.info("door", "waiters")) === 1, "a waiter");
      stop.abort(new Error("enough"));
      await assert.rejects(waiting, /^Error: enough$/);
      assert.equal(await server.info("door", "waiters"), 0);
    });

    test("reason_of_an_abort_may_be_anything", async () => {
      const locks = createLocks(library.client(server.port));
      await using _lock = await locks.acquire("reason", { lease: 30_000 });
      for (const reason of [null, 0, "text"]) {
        const stop = new AbortController();
        const waiting = locks.acquire("reason", { signal: stop.signal });
        setTimeout(() => stop.abort(reason), 20);
        await assert.rejects(waiting, (error) => error === reason);
        await assert.rejects(locks.acquire("reason", { signal: stop.signal }), (error) => error === reason);
      }
    });

    test("one_signal_ends_a_thousand_waits", async () => {
      const locks = createLocks(library.client(server.port));
      const warnings: Error[] = [];
      process.on("warning", (warning) => warnings.push(warning));
      await using _lock = await locks.acquire("many", { lease: 30_000 });
      const stop = new AbortController();
      const waits = Array.from({ length: 1000 }, () => locks.acquire("many", { lease: 30_000, signal: stop.signal }));
      const settled = Promise.allSettled(waits);
      await until(async () => (await server.info("many", "waiters")) === 1, "a waiter");
      stop.abort();
      assert.ok((await settled).every(({ status }) => status === "rejected"));
      assert.equal(await server.info("many", "waiters"), 0);
      assert.deepEqual(warnings, []);
    });

    test("abort_in_local_queue_frees_the_next", async () => {
      const locks = createLocks(library.client(server.port));
      const lock = await locks.acquire("turn", { lease: 30_000 });
      const stop = new AbortController();
      const first = locks.acquire("turn", { lease: 30_000, signal: stop.signal });
      const second = locks.acquire("turn", { lease: 30_000 });
      await sleep(50);
      stop.abort();
      await assert.rejects(first, { name: "AbortError" });
      await lock.release();
      await (await second).release();
    });

    // With a lease that does not end in the test, an orphaned lock would stop all others.
    test("aborts_at_random_moments_leave_no_orphan", async () => {
      const locks = createLocks(library.client(server.port));
      let [granted, aborted] = [0, 0];
      const attempt = async (n: number) => {
        const stop = new AbortController();
        const timer = setTimeout(() => stop.abort(), Math.random() * 20);
        try {
          await using lock = await locks.acquire(`random:${n % LOCKS}`, { lease: 600_000, signal: stop.signal });
          granted++;
          if (Math.random() < 0.5) await sleep(Math.random() * 2);
          if (n % 7 === 0) await lock.extend(600_000);
        } catch (error) {
          if (error !== stop.signal.reason) throw error;
          aborted++;
        } finally {
          clearTimeout(timer);
        }
      };
      for (let n = 0; aborted < ABORTS; ) await Promise.all(Array.from({ length: 100 }, () => attempt(n++)));
      assert.ok(granted > 0, `${granted} granted, ${aborted} aborted`);
      for (let n = 0; n < LOCKS; n++) {
        assert.equal(await server.info(`random:${n}`, "state"), "free");
        assert.equal(await server.info(`random:${n}`, "waiters"), 0);
      }
    });
  });
}
