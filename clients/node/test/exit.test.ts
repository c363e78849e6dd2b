import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { before, suite, test } from "node:test";
import { fileURLToPath } from "node:url";
import { GLIDE, LIBRARIES } from "./support/libraries.js";
import { Load } from "./support/load.js";
import { TestServer } from "./support/servers.js";

const PROGRAM = fileURLToPath(new URL("./programs/exit.js", import.meta.url));

for (const library of [...LIBRARIES, GLIDE]) {
  suite(library.name, { concurrency: 4 }, () => {
    const server = TestServer.forAll();
    before(async () => {
      await server.command("LOCK.ACQUIRE", "busy", "another");
    });

    for (const what of ["release", "using", "session", "unwatched", "timeout", "abort", "loss"]) {
      test(`process_exits_after_${what}`, async () => {
        const child = spawn(process.execPath, [PROGRAM, library.name, String(server.port), what], {
          stdio: ["ignore", "pipe", "inherit"],
        });
        using load = new Load(server);
        let doneAt = 0;
        child.stdout.on("data", (text) => {
          if (String(text).includes("done")) doneAt = performance.now();
        });
        const [code] = await once(child, "exit");
        const took = performance.now() - doneAt;
        assert.equal(code, 0);
        assert.ok(doneAt > 0);
        // The connections of valkey-glide have to be closed first.
        assert.ok(took - 10 * load.longest < 500 + (library === GLIDE ? 2_000 : 0), `${took} ms`);
      });
    }

    // A RELEASE that is sent again and again, for as long as the lease, does not keep the process alive.
    test("process_exits_in_an_outage", async () => {
      const absent = await TestServer.start();
      const child = spawn(process.execPath, [PROGRAM, library.name, String(absent.port), "outage"], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      await once(child.stdout, "data");
      await absent[Symbol.asyncDispose]();
      child.stdout.resume();
      using load = new Load(server);
      const began = performance.now();
      const [code] = await once(child, "exit");
      const took = performance.now() - began;
      assert.equal(code, 0);
      // valkey-glide keeps the process alive while it tries to connect.
      assert.ok(took - 10 * load.longest < 3_000 + (library === GLIDE ? 15_000 : 0), `${took} ms`);
    });
  });
}
