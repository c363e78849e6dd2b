// What users have tried at the edges of the interface.
import assert from "node:assert/strict";
import { once } from "node:events";
import { suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { driverOf } from "../src/drivers/index.js";
import { createLocks, LockError, LockLostError, ModuleNeededError } from "../src/index.js";
import { until } from "./support/conditions.js";
import { slowMessages } from "./support/faults.js";
import { LIBRARIES } from "./support/libraries.js";
import { ownTime, withLease } from "./support/load.js";
import { TestServer } from "./support/servers.js";

const lease = 30_000;

for (const library of LIBRARIES) {
  suite(library.name, { concurrency: true }, () => {
    const server = TestServer.forAll();
    const locks = () => createLocks(library.client(server.port));

    test("entered_lock_is_renewed_if_the_inner_one_is", async () => {
      const enter = (short: number) =>
        locks().using("inner", { lease: short, reentrant: true }, () =>
          locks().using("inner", { lease: short, reentrant: true, renew: true }, async (lock) => {
            await sleep(3 * short);
            assert.equal(lock.isHeld, true);
            assert.equal(await server.info("inner", "owner"), lock.token);
          }),
        );
      await withLease(300, enter, server);
    });

    test("entered_lock_without_session_refuses_one", async () => {
      await locks().using("no session", { lease, reentrant: true }, async () => {
        const inner = locks().acquire("no session", { reentrant: true, session: true });
        await assert.rejects(inner, /^TypeError: lock "no session": it is held without a session/);
      });
    });

    test("aborted_signal_enters_no_lock", async () => {
      await locks().using("aborted", { lease, reentrant: true }, async (outer) => {
        const signal = AbortSignal.abort(new Error("before"));
        await assert.rejects(locks().acquire("aborted", { reentrant: true, signal }), /before/);
        assert.equal(outer.isHeld, true);
      });
      assert.equal(await server.info("aborted", "state"), "free");
    });

    test("grant_heard_after_its_lease_is_no_lock", async () => {
      const slow = createLocks(slowMessages(driverOf(library.client(server.port)), 2_500));
      const first = await slow.acquire("heard late", { lease });
      const waiting = slow.acquire("heard late", { lease: 1_000 });
      await until(async () => (await server.info("heard late", "waiters")) === 1, "a waiter");
      await first.release();
      const other = ["LOCK.ACQUIRE", "heard late", "another", "PX", "3000"];
      // Before the message is heard, or the waiter would take the lock.
      await until(async () => (await server.command(...other)) === 1, "the lease is over");
      const lock = await waiting;
      assert.equal(lock.isHeld && (await server.info("heard late", "owner")), lock.token);
    });

    test("observe_rejects_with_an_error_of_the_lock", async () => {
      await server.command("ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-lock.info");
      const blind = createLocks(library.client(server.port, "blind:secret@"));
      await assert.rejects(blind.observe("door").next(), (error) => {
        assert.ok(error instanceof LockError);
        assert.match(error.message, /^lock "door": NOPERM/);
        return true;
      });
    });

    test("abort_ends_observe_at_a_silent_server", async () => {
      await using silent = await TestServer.start();
      const stop = new AbortController();
      const labels = createLocks(library.client(silent.port)).observe("door", { signal: stop.signal });
      assert.equal((await labels.next()).value, null);
      silent.signal("SIGSTOP");
      await sleep(5_500);
      const took = await ownTime(async () => {
        setTimeout(() => stop.abort(new Error("enough")), 100);
        await assert.rejects(labels.next(), /enough/);
      });
      assert.ok(took < 500, `${took} ms`);
    });

    test("attach_of_a_token_that_is_held_is_refused", async () => {
      const lock = await locks().acquire("attached", { lease });
      const again = locks().attach("attached", lock.token, { lease });
      await assert.rejects(again, /^TypeError: lock "attached": this process holds it by this token/);
      assert.equal(lock.isHeld, true);
      const token = lock.detach();
      const both = [locks().attach("attached", token, { lease }), locks().attach("attached", token, { lease })];
      const settled = await Promise.allSettled(both);
      assert.deepEqual(settled.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
    });

    test("attached_lock_has_the_form_of_the_lock", async () => {
      const token = (await locks().acquire("formed", { lease })).detach();
      await using lock = await locks().attach("formed", token, { lease, permits: 3 } as object);
      const { signal } = lock;
      await until(() => server.isTracking(), "the lock is watched");
      await sleep(100);
      assert.equal(signal.aborted, false);
      await assert.rejects(locks().attach("formed", "another"), LockLostError);
    });

    test("signal_that_is_read_after_the_lease_aborts_later", async () => {
      const lock = await locks().acquire("read late", { lease: 1_000 });
      await until(() => !lock.isHeld, "the end of the lease");
      // A listener that is added at once hears it.
      assert.equal(lock.signal.aborted, false);
      await once(lock.signal, "abort");
      assert.ok(lock.signal.reason instanceof LockLostError);
    });

    test("wait_without_limit_outlives_the_longest_timer", async (t) => {
      const one = locks();
      const first = await one.acquire("endless", { lease });
      const { setTimeout: real } = globalThis;
      // The longest time of a timer, 24 days, is over soon.
      const soon = (run: () => void, ms: number, ...args: []) => real(run, ms < 2 ** 31 - 1 ? ms : 100, ...args);
      globalThis.setTimeout = Object.assign(soon, real) as typeof setTimeout;
      t.after(() => {
        globalThis.setTimeout = real;
      });
      const waits = [undefined, Number.POSITIVE_INFINITY, 2 ** 32].map((wait) =>
        one.acquire("endless", { lease, wait }),
      );
      await Promise.race([Promise.all(waits), sleep(500)]);
      await first.release();
      for (const wait of waits) await (await wait).release();
    });
  });
}

test("missing_module_names_the_lock_and_the_option", async () => {
  await using server = await TestServer.start([], false);
  const locks = createLocks(new Redis(server.port, { lazyConnect: true, keyPrefix: "app:" }));
  for (const [option, value] of Object.entries({ permits: 3, shared: true, session: true })) {
    await assert.rejects(locks.acquire("door", { lease, [option]: value }), (error) => {
      assert.ok(error instanceof ModuleNeededError && error.name === "ModuleNeededError");
      assert.equal(error.lock, "door");
      assert.equal(error.message, `lock "door": ${option} needs the module redis-lock, which is not loaded`);
      return true;
    });
  }
  await using lock = await locks.acquire("door", { lease });
  await assert.rejects(lock.fence(), /^ModuleNeededError: lock "door": fence needs the module/);
});
