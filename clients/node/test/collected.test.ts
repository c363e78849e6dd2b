import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type Lock, LockLostError, type LockOptions } from "../src/index.js";
import { unhandled, until } from "./support/conditions.js";
import { locksOn } from "./support/libraries.js";
import { TestServer } from "./support/servers.js";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

test("collected_lock_is_released_with_a_warning", async () => {
  await using server = await TestServer.start();
  const locks = locksOn(server.port);
  for (const options of [{ renew: true }, { session: true }] satisfies Partial<LockOptions>[]) {
    const acquire = async () => (await locks.acquire("door", { lease: 60_000, ...options })).signal;
    const signal = await acquire();
    const warned = once(process, "warning");
    const isFree = async () => {
      collectGarbage();
      return (await server.info("door", "state")) === "free";
    };
    await until(isFree, "the lock is free");
    const [warning] = await warned;
    assert.equal(warning.message, 'lock "door" was not released before its object was collected');
    assert.ok(signal.aborted && signal.reason instanceof LockLostError);
  }
  assert.deepEqual(unhandled, []);
});

test("collected_lock_that_was_released_warns_not", async () => {
  await using server = await TestServer.start();
  const locks = locksOn(server.port);
  let warnings = 0;
  process.on("warning", () => warnings++);
  for (let n = 0; n < 20; n++) await locks.using(`door:${n}`, {}, collectGarbage);
  collectGarbage();
  await locks.using("last", {}, collectGarbage);
  assert.equal(warnings, 0);
});

test("turns_that_start_the_next_one_keep_no_released_locks", async () => {
  await using server = await TestServer.start();
  const locks = locksOn(server.port);
  const holds: WeakRef<object>[] = [];
  const over = new EventEmitter();
  const turn = (n: number) => {
    const work = (lock: Lock) => {
      holds.push(new WeakRef(lock.hold));
      if (n > 0) setImmediate(turn, n - 1);
      else
        setTimeout(() => {
          collectGarbage();
          over.emit("end");
        }, 100);
    };
    locks.using("turns", { lease: 30_000, reentrant: true }, work).catch((error) => over.emit("error", error));
  };
  turn(20);
  await once(over, "end");
  const kept = holds.filter((hold) => hold.deref() !== undefined);
  assert.ok(kept.length < 5, `${kept.length} of ${holds.length}`);
});
