import assert from "node:assert/strict";
import { once } from "node:events";
import { suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { driverOf } from "../src/drivers/index.js";
import { createLocks, type Lock, LockLostError } from "../src/index.js";
import { slowReplies } from "./support/faults.js";
import { LIBRARIES } from "./support/libraries.js";
import { PATIENCE, TestServer } from "./support/servers.js";

const NOTICE_MS = 50 * PATIENCE;

for (const library of LIBRARIES) {
  suite(library.name, () => {
    const server = TestServer.forAll();
    const locks = () => createLocks(library.client(server.port));

    /** Returns after how many milliseconds a lock was reported as lost. */
    async function notice(lock: Lock, lose: () => Promise<unknown>): Promise<number> {
      const { signal } = lock;
      await server.command("PING");
      await sleep(100);
      const lost = once(signal, "abort");
      const began = performance.now();
      await Promise.all([lost, lose()]);
      assert.ok(signal.reason instanceof LockLostError);
      assert.equal(lock.isHeld, false);
      return performance.now() - began;
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
      const lease = 500 * PATIENCE;
      const began = performance.now();
      const lock = await locks().acquire("lease", { lease });
      await once(lock.signal, "abort");
      const took = performance.now() - began;
      assert.ok(took >= lease && took < lease + NOTICE_MS, `${took} ms`);
    });

    test("frozen_server_aborts_at_end_of_lease", async () => {
      await using frozen = await TestServer.start();
      const lock = await createLocks(library.client(frozen.port)).acquire("frozen", { lease: 500, renew: true });
      const took = await notice(lock, async () => frozen.signal("SIGSTOP"));
      assert.ok(took < 500 + NOTICE_MS, `${took} ms`);
    });

    test("renewed_lock_outlives_its_lease", async () => {
      await locks().using("renewed", { lease: 300 }, async (lock) => {
        await sleep(1_000);
        assert.equal(lock.signal.aborted, false);
        assert.equal(await server.info("renewed", "owner"), lock.token);
      });
      assert.equal(await server.info("renewed", "state"), "free");
    });

    test("extension_moves_the_end", async () => {
      const lock = await locks().acquire("extended", { lease: 300 });
      const { signal } = lock;
      await lock.extend(30_000);
      await sleep(500);
      assert.equal(signal.aborted, false);
      await lock.release();
      await assert.rejects(lock.extend(1_000), /has been released/);
    });

    test("renewal_does_not_undo_an_extension", async () => {
      const isSlow = (words: readonly string[]) => words.includes("30000");
      const driver = slowReplies(driverOf(library.client(server.port)), isSlow, 200 * PATIENCE);
      await createLocks(driver).using("undone", { lease: 300 * PATIENCE }, async (lock) => {
        await lock.extend(30_000);
        assert.ok(Number(await server.command("PTTL", "undone")) > 29_000 - 300 * PATIENCE);
        assert.equal(lock.signal.aborted, false);
      });
    });

    test("refused_extension_keeps_the_renewal", async () => {
      await using limited = await TestServer.start(["--lock.max-lease-ms", "5000"]);
      await createLocks(library.client(limited.port)).using("refused", { lease: 400 * PATIENCE }, async (lock) => {
        await assert.rejects(lock.extend(60_000), /LEASELIMIT/);
        await sleep(1_000 * PATIENCE);
        assert.equal(lock.signal.aborted, false);
      });
    });

    test("lost_block_rejects_with_loss", async () => {
      const using = locks().using("using", { lease: 30_000 }, async () => {
        await server.command("DEL", "using");
      });
      await assert.rejects(using, LockLostError);
      const failing = locks().using("using", { lease: 30_000 }, async ({ signal }) => {
        setTimeout(() => server.command("DEL", "using"), 50);
        await sleep(10_000, undefined, { signal });
      });
      await assert.rejects(failing, { name: "AbortError" });
    });

    test("await_using_throws_unreported_loss_alone", async () => {
      const silent = async () => {
        await using _lock = await locks().acquire("dispose", { lease: 30_000 });
        await server.command("DEL", "dispose");
      };
      await assert.rejects(silent(), LockLostError);
      const reported = async () => {
        await using lock = await locks().acquire("dispose", { lease: 30_000 });
        setTimeout(() => server.command("DEL", "dispose"), 50);
        await once(lock.signal, "abort");
        throw new Error("of the work");
      };
      await assert.rejects(reported(), /^Error: of the work$/);
    });
  });
}
