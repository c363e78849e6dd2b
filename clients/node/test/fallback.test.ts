import assert from "node:assert/strict";
import { once } from "node:events";
import { suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, LockLostError, LockTimeoutError } from "../src/index.js";
import { GLIDE, LIBRARIES, locksOn } from "./support/libraries.js";
import { ownTime, withLease } from "./support/load.js";
import { TestServer } from "./support/servers.js";

const lease = 30_000;

for (const library of [...LIBRARIES, GLIDE]) {
  suite(`${library.name} without the module`, { concurrency: true }, () => {
    const server = TestServer.forAll(false);
    const locks = () => createLocks(library.client(server.port));

    test("waiters_poll", async () => {
      const first = await locks().acquire("door", { lease });
      assert.equal(await locks().tryAcquire("door", { lease }), null);
      await assert.rejects(locks().acquire("door", { lease, wait: 100 }), LockTimeoutError);
      const next = locks().acquire("door", { lease });
      await sleep(50);
      await first.release();
      await (await next).release();
      assert.equal(await server.command("EXISTS", "door"), 0);
    });

    test("layout_is_that_of_other_libraries", async () => {
      const lock = await locks().acquire("string", { lease });
      assert.equal(await server.command("GET", "string"), lock.token);
      await lock.release();
      await locks().using("hash", { lease, reentrant: true }, async ({ token }) => {
        await locks().using("hash", { lease, reentrant: true }, () => {});
        assert.equal(await server.command("HGET", "hash", token), "1");
      });
      assert.equal(await server.command("EXISTS", "hash"), 0);
    });

    test("renewal_and_extension_work", async () => {
      const renew = (short: number) =>
        locks().using("renewed", { lease: short, renew: true }, async (lock) => {
          await sleep(2 * short);
          assert.equal(lock.signal.aborted, false);
          await lock.extend(lease + short);
          assert.ok(Number(await server.command("PTTL", "renewed")) > lease);
        });
      await withLease(500, renew, server);
    });

    test("loss_is_seen_at_once_or_at_the_next_renewal", async () => {
      // valkey-glide does not bring what CLIENT TRACKING reports.
      const lock = await locks().acquire("lost", { lease: library === GLIDE ? 900 : lease, renew: true });
      const lost = once(lock.signal, "abort");
      // Some libraries open a second connection for it.
      await sleep(500);
      const took = await ownTime(() => Promise.all([lost, server.command("SET", "lost", "another")]), server, 10);
      assert.ok(took < (library === GLIDE ? 900 : 50), `${took} ms`);
      await assert.rejects(lock.release(), LockLostError);
      assert.equal(await server.command("GET", "lost"), "another");
    });

    test("aborted_wait_leaves_nothing", async () => {
      const first = await locks().acquire("aborted", { lease });
      const signal = AbortSignal.timeout(100);
      await assert.rejects(locks().acquire("aborted", { lease, signal }), { name: "TimeoutError" });
      await first.release();
      await sleep(300);
      assert.equal(await server.command("EXISTS", "aborted"), 0);
    });
  });
}

suite("modules that come and go", () => {
  test("module_is_used_once_it_is_loaded", async () => {
    await using server = await TestServer.start(["--enable-module-command", "yes"], false);
    const locks = locksOn(server.port);
    const holder = await locks.acquire("door", { lease: 60_000 });
    const waiting = locks.acquire("door", { lease: 60_000 });
    await server.command("MODULE", "LOAD", process.env.MODULE ?? "");
    await sleep(6_000);
    assert.equal(await server.info("door", "waiters"), 1);
    await holder.release();
    await (await waiting).release();
  });

  test("server_that_knows_no_scripts_is_an_error", async () => {
    await using server = await TestServer.start(["--rename-command", "EVAL", "no-eval"], false);
    const attempt = locksOn(server.port).acquire("door", { lease: 1_000, wait: 60_000 });
    await assert.rejects(attempt, /^LockError: lock "door": ERR unknown command/);
  });

  test("user_without_rights_to_tracking_is_served", async () => {
    await using server = await TestServer.start();
    await server.command("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-client|tracking");
    for (const library of LIBRARIES) {
      const client = library.client(server.port, "app:secret@");
      const renew = (short: number) =>
        createLocks(client).using("untracked", { lease: short, renew: true }, async (lock) => {
          await sleep(2 * short);
          assert.equal(lock.signal.aborted, false);
        });
      await withLease(300, renew, server);
    }
  });

  test("user_without_rights_to_channels_polls", async () => {
    await using server = await TestServer.start();
    await server.command("ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "+@all");
    const warnings: string[] = [];
    process.on("warning", ({ message }) => warnings.push(message));
    for (const library of LIBRARIES) {
      const client = library.client(server.port, "app:secret@");
      const locks = createLocks(client);
      const first = await locks.acquire("acl", { lease });
      const next = locks.acquire("acl", { lease, renew: true });
      await sleep(100);
      await first.release();
      const took = await ownTime(async () => (await next).release(), server, 10);
      assert.ok(took < 500, `${took} ms`);
    }
    // One for each connection that clients share.
    const text = "locks poll: the user has no right to the channels redis-lock:*";
    assert.ok(warnings.length > 0 && warnings.length <= LIBRARIES.length);
    assert.ok(warnings.every((warning) => warning === text));
  });
});
