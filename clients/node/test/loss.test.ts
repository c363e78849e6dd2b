import assert from "node:assert/strict";
import { once } from "node:events";
import { suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { driverOf } from "../src/drivers/index.js";
import { createLocks, type Lock, LockLostError, type Locks } from "../src/index.js";
import { until } from "./support/conditions.js";
import { slowMessages, slowReplies, slowTracking, stall } from "./support/faults.js";
import { LIBRARIES } from "./support/libraries.js";
import { ownTime, withLease } from "./support/load.js";
import { TestServer } from "./support/servers.js";

const NOTICE_MS = 50;

for (const library of LIBRARIES) {
  suite(library.name, () => {
    const server = TestServer.forAll();
    const locks = () => createLocks(library.client(server.port));

    const driver = () => driverOf(library.client(server.port));

    /** Returns after how many milliseconds a watched lock was reported as lost. */
    async function notice(lock: Lock, lose: () => Promise<unknown>): Promise<number> {
      const { signal } = lock;
      await until(() => server.isTracking(), "the lock is watched");
      const took = await ownTime(() => Promise.all([once(signal, "abort"), lose()]), server);
      assert.ok(signal.reason instanceof LockLostError);
      assert.equal(lock.isHeld, false);
      return took;
    }

    for (const [how, options] of [
      ["deleted_lock", {}],
      ["deleted_renewed_lock", { renew: true }],
      ["deleted_session", { session: true }],
      ["deleted_share", { shared: true }],
      ["deleted_permit", { permits: 3 }],
      ["deleted_reentrant_lock", { reentrant: true }],
    ] as const) {
      test(`${how}_aborts_within_50_ms`, async () => {
        const lock = await locks().acquire(how, { lease: 30_000, ...options });
        const took = await notice(lock, () => server.command("DEL", how));
        assert.ok(took < NOTICE_MS, `${took} ms`);
        await assert.rejects(lock.release(), LockLostError);
      });
    }

    test("watched_shares_cost_six_commands_each", async () => {
      const [one, count] = [locks(), 100];
      const share = () => one.acquire("readers", { lease: 30_000, shared: true });
      const read = async () => {
        await using lock = await share();
        assert.equal(lock.signal.aborted, false);
        await sleep(20);
      };
      await read();
      const before = await server.calls();
      await Promise.all(Array.from({ length: count }, read));
      const calls = (await server.calls()) - before;
      assert.ok(calls < 6 * count, `${calls} commands`);
      const held = await Promise.all(Array.from({ length: count }, share));
      const signals = held.map((lock) => lock.signal);
      await sleep(100);
      const untilChanges = await server.calls();
      for (let n = 0; n < 10; n++) {
        await server.command("LOCK.SHARE", "readers", `other:${n}`, "PX", "60000");
        await sleep(20);
      }
      const ofChanges = (await server.calls()) - untilChanges;
      assert.ok(ofChanges < count, `${ofChanges} commands for 10 changes`);
      await server.command("ZREM", "readers", held[7]?.token ?? "");
      await until(() => signals[7]?.aborted === true, "the loss");
      assert.deepEqual(
        signals.filter((signal) => signal.aborted),
        [signals[7]],
      );
      const lost = Promise.all(signals.map((signal) => signal.aborted || once(signal, "abort")));
      await server.command("DEL", "readers");
      await lost;
    });

    test("lost_and_present_hold_of_one_key_differ", async () => {
      const reentrant = { lease: 30_000, reentrant: true };
      const [first, second] = [await locks().acquire("both", reentrant), locks().acquire("both", reentrant)];
      const lost = once(first.signal, "abort");
      await sleep(100);
      await server.command("DEL", "both");
      const { signal } = await second;
      await lost;
      await sleep(100);
      assert.equal(signal.aborted, false);
      await (await second).release();
    });

    test("late_grant_that_is_gone_is_lost", async () => {
      const one = createLocks(slowMessages(driver(), 400));
      const first = await one.acquire("gone", { lease: 5_000 });
      const waiting = one.acquire("gone", { lease: 5_000 });
      await until(async () => (await server.info("gone", "waiters")) === 1, "a waiter");
      await first.release();
      await server.command("DEL", "gone");
      const { signal } = await waiting;
      const took = await ownTime(async () => signal.aborted || once(signal, "abort"), server);
      assert.ok(took < NOTICE_MS, `${took} ms`);
    });

    test("flushed_lock_aborts_within_50_ms", async () => {
      const lock = await locks().acquire("flushed", { lease: 30_000 });
      const took = await notice(lock, () => server.command("FLUSHALL"));
      assert.ok(took < NOTICE_MS, `${took} ms`);
    });

    test("lock_of_another_holder_aborts_within_50_ms", async () => {
      const lock = await locks().acquire("other", { lease: 30_000 });
      const took = await notice(lock, () => server.command("SET", "other", "x"));
      assert.ok(took < NOTICE_MS, `${took} ms`);
      await assert.rejects(lock.extend(1_000), LockLostError);
    });

    test("end_of_lease_aborts", async () => {
      const began = performance.now();
      const took = await ownTime(async () => {
        const lock = await locks().acquire("lease", { lease: 500 });
        await once(lock.signal, "abort");
        assert.ok(performance.now() - began >= 500);
      }, server);
      assert.ok(took < 500 + NOTICE_MS, `${took} ms`);
    });

    test("frozen_server_aborts_at_end_of_lease", async () => {
      await using frozen = await TestServer.start();
      const lock = await createLocks(library.client(frozen.port)).acquire("frozen", { lease: 500, renew: true });
      const lost = once(lock.signal, "abort");
      frozen.signal("SIGSTOP");
      const took = await ownTime(() => lost);
      assert.ok(took < 500 + NOTICE_MS, `${took} ms`);
      assert.ok(lock.signal.reason instanceof LockLostError);
    });

    /** Checks that a lock is held for three times its lease, which is renewed. */
    const outlives = (locksFor: (lease: number) => Locks) => {
      const hold = (lease: number) =>
        locksFor(lease).using("renewed", { lease, renew: true }, async (lock) => {
          await sleep(3 * lease);
          assert.equal(lock.signal.aborted, false);
          assert.equal(await server.info("renewed", "owner"), lock.token);
        });
      return withLease(300, hold, server);
    };

    test("renewed_lock_outlives_its_lease", async () => {
      await outlives(locks);
      assert.equal(await server.info("renewed", "state"), "free");
    });

    test("slow_tracking_delays_no_renewal", async () => {
      await outlives((lease) => createLocks(slowTracking(driver(), 2 * lease)));
    });

    test("stall_after_a_renewal_keeps_the_lock", async () => {
      await outlives((lease) => {
        let renewals = 0;
        const isFirst = ([name]: readonly string[]) => name === "LOCK.EXTEND" && renewals++ === 0;
        // The renewal is sent after a third of the lease. The stall ends after the first lease, and before the new one.
        return createLocks(slowReplies(driver(), isFirst, () => stall(lease * 0.75)));
      });
    });

    test("extension_moves_the_end", async () => {
      const extend = async (lease: number) => {
        await using lock = await locks().acquire("extended", { lease });
        const { signal } = lock;
        await lock.extend(30_000 + lease);
        await sleep(2 * lease);
        assert.equal(signal.aborted, false);
        return lock;
      };
      const lock = await withLease(300, extend, server);
      await assert.rejects(lock.extend(1_000), /has been released/);
    });

    test("renewal_does_not_undo_an_extension", async () => {
      const extend = async (lease: number) => {
        const isSlow = (words: readonly string[]) => words.includes("60000");
        const slow = slowReplies(driver(), isSlow, () => sleep(lease * 0.7));
        await createLocks(slow).using("undone", { lease, renew: true }, async (lock) => {
          await lock.extend(60_000);
          assert.ok(Number(await server.command("PTTL", "undone")) > 60_000 - 2 * lease);
          assert.equal(lock.signal.aborted, false);
        });
      };
      await withLease(300, extend, server);
    });

    test("await_using_throws_unreported_loss_alone", async () => {
      for (const options of [{ lease: 30_000 }, {}, { session: true }, undefined]) {
        const silent = async () => {
          await using _lock = options
            ? await locks().acquire("dispose", options)
            : await locks().several(["dispose", "other dispose"]);
          await until(() => options?.lease !== undefined || server.isTracking(), "the lock is watched");
          await server.command("DEL", "dispose");
          await sleep(100);
        };
        await assert.rejects(silent(), LockLostError);
      }
      const reported = async () => {
        await using lock = await locks().acquire("dispose", { lease: 30_000 });
        setTimeout(() => server.command("DEL", "dispose"), 50);
        await once(lock.signal, "abort");
        throw new Error("of the work");
      };
      await assert.rejects(reported(), /^Error: of the work$/);
      const severalReported = async () => {
        await using several = await locks().several(["dispose", "other dispose"]);
        setTimeout(() => server.command("DEL", "dispose"), 50);
        await once(several.signal, "abort");
        throw new Error("of the work");
      };
      await assert.rejects(severalReported(), /^Error: of the work$/);
    });
  });
}
