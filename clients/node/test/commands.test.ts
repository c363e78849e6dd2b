// A call for each command. The site shows them on the page of the command: from such a comment to the next empty line.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createLocks } from "../src/index.js";
import { LIBRARIES } from "./support/libraries.js";
import { TestServer } from "./support/servers.js";

const server = TestServer.forAll();

test("commands_have_calls", async () => {
  const locks = createLocks(LIBRARIES[0]!.client(server.port));
  // LOCK.ACQUIRE
  const lock = await locks.acquire("door", { lease: 30_000, wait: 20_000 });

  // LOCK.FENCE
  const number = await lock.fence();

  // LOCK.EXTEND
  await lock.extend(60_000);

  // LOCK.RELEASE
  await lock.release();

  // LOCK.REENTER
  await locks.using("cellar", { reentrant: true }, async () => {
    await locks.using("cellar", { reentrant: true }, async () => console.log("this call holds it twice"));
  });

  // LOCK.SHARE
  const reader = await locks.acquire("page", { shared: true });
  const permit = await locks.acquire("printers", { permits: 3 });

  assert.ok(number > 0);
  await Promise.all([reader.release(), permit.release()]);
  for (const name of ["door", "cellar", "page", "printers"]) assert.equal(await server.info(name, "state"), "free");
});
