// The processor time of a free lock compared with the plain commands. bench/cost.mjs measures other packages, too.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { TestServer } from "./support/servers.js";

const PROGRAM = fileURLToPath(new URL("./programs/cost.js", import.meta.url));
const BOUND = 1.4;
const server = TestServer.forAll();

for (const library of ["ioredis", "node-redis"]) {
  for (const tasks of ["1", "100"]) {
    test(`free_lock_costs_little_more_than_its_commands, ${library}, ${tasks}`, async () => {
      const all: number[] = [];
      // A process of its own, because node:test makes promises dear; and again, because a busy machine adds to one of them.
      while (all.length < 4 && !(Math.min(...all) <= BOUND)) {
        const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM, library, String(server.port), tasks]);
        all.push(Number(stdout));
      }
      assert.ok(Math.min(...all) <= BOUND, `${all}`);
    });
  }
}
