import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { createClient } from "redis";
import { unhandled } from "./conditions.js";

export const SERVER = process.env.SERVER ?? "redis-server";
const MODULE = process.env.MODULE ?? "";

/** Servers end with this process, and do not keep it alive: a test that fails before it can stop them ends, too. */
const children = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});

/** A server of a test, on 127.0.0.1. */
export class TestServer implements AsyncDisposable {
  #process: ChildProcess | undefined;
  #admin: Promise<{ sendCommand(words: string[]): Promise<unknown>; destroy(): void }> | undefined;
  #port = 0;
  #busPort = 0;
  readonly #folder = mkdtempSync(join(tmpdir(), "redis-lock-client-"));
  readonly options: readonly string[];

  private constructor(
    options: readonly string[],
    hasModule: boolean,
    readonly isInCluster = false,
    /** The port of the master that a sentinel watches. */
    readonly watched?: number,
  ) {
    this.options = hasModule ? ["--loadmodule", MODULE, ...options] : options;
  }

  /** Starts a sentinel that watches a master, which it names "locks". */
  static async sentinel(master: TestServer): Promise<TestServer> {
    const server = new TestServer([], false, false, master.port);
    await server.start();
    return server;
  }

  /** Starts a server with the module, unless `hasModule` is false. */
  static async start(options: readonly string[] = [], hasModule = true): Promise<TestServer> {
    const server = new TestServer(options, hasModule);
    await server.start();
    return server;
  }

  /** Starts a node of a cluster. */
  static async node(options: readonly string[] = []): Promise<TestServer> {
    const server = new TestServer(options, true, true);
    await server.start();
    return server;
  }

  /** A server for all tests of the file or suite, which may leave no unhandled rejection. */
  static forAll(hasModule = true): TestServer {
    const server = new TestServer([], hasModule);
    before(() => server.start());
    after(async () => {
      await server[Symbol.asyncDispose]();
      assert.deepEqual(unhandled, []);
    });
    return server;
  }

  get port(): number {
    return this.#port;
  }

  /** The port of a node of a cluster for other nodes. */
  get busPort(): number {
    return this.#busPort;
  }

  get #isRunning(): boolean {
    return this.#process?.exitCode === null && this.#process.signalCode === null;
  }

  /** Starts the process, again after `stop`. */
  async start(): Promise<void> {
    if (this.#isRunning) return;
    const isNew = this.#port === 0;
    if (isNew) [this.#port, this.#busPort] = [await freePort(), await freePort()];
    const child = spawn(SERVER, this.#arguments(), { stdio: ["ignore", "pipe", "inherit"] });
    this.#process = child;
    children.add(child);
    child.once("exit", () => children.delete(child));
    const ready = /Ready to accept connections|Sentinel ID is/;
    let log = "";
    for await (const part of child.stdout) {
      log += part;
      if (ready.test(log)) break;
    }
    if (ready.test(log)) {
      child.unref();
      return;
    }
    if (!isNew || !/Address already in use/.test(log)) throw new Error(`the server does not start: ${log}`);
    // Another program has taken the port.
    if (child.exitCode === null) await once(child, "exit");
    this.#port = 0;
    await this.start();
  }

  #arguments(): string[] {
    const always = ["--port", String(this.port), "--bind", "127.0.0.1", "--dir", this.#folder, "--save", ""];
    const bus = this.isInCluster ? ["--cluster-enabled", "yes", "--cluster-port", String(this.busPort)] : [];
    if (this.watched === undefined) return [...always, ...bus, ...this.options];
    const file = join(this.#folder, "sentinel.conf");
    const lines = [`port ${this.port}`, "bind 127.0.0.1", `sentinel monitor locks 127.0.0.1 ${this.watched} 1`];
    const times = ["sentinel down-after-milliseconds locks 5000", "sentinel failover-timeout locks 2000"];
    writeFileSync(file, [...lines, ...times].join("\n"));
    return [file, "--sentinel"];
  }

  /** Sends a command by a connection of the tests. */
  async command(...words: string[]): Promise<unknown> {
    this.#admin ??= this.#connect();
    return (await this.#admin).sendCommand(words);
  }

  async #connect() {
    const client = createClient({ url: this.url, RESP: 3, maintNotifications: "disabled" });
    client.on("error", () => {});
    return client.connect();
  }

  /** Returns a field of LOCK.INFO. */
  async info(key: string, field: string): Promise<unknown> {
    return ((await this.command("LOCK.INFO", key)) as Record<string, unknown>)[field];
  }

  /** Returns whether CLIENT TRACKING watches a key. */
  async isTracking(): Promise<boolean> {
    return /tracking_total_keys:[1-9]/.test(String(await this.command("INFO", "stats")));
  }

  /** Returns how many commands the server has processed. */
  async calls(): Promise<number> {
    return Number(/total_commands_processed:(\d+)/.exec(String(await this.command("INFO", "stats")))?.[1]);
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Cuts the connections of the package. */
  async cut(): Promise<void> {
    const list = String(await this.command("CLIENT", "LIST"));
    for (const [, id] of list.matchAll(/id=(\d+) .*name=redis-lock-client/g)) {
      await this.command("CLIENT", "KILL", "ID", String(id));
    }
  }

  /** Returns how many connections the package has. */
  async connections(): Promise<number> {
    return [...String(await this.command("CLIENT", "LIST")).matchAll(/name=redis-lock-client/g)].length;
  }

  /** Stops the process without a sign to its clients, or lets it go on. */
  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  async stop(): Promise<void> {
    if (!this.#process || !this.#isRunning) return;
    this.#process.ref();
    this.#process.kill("SIGKILL");
    await once(this.#process, "exit");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    (await this.#admin)?.destroy();
    await this.stop();
    rmSync(this.#folder, { recursive: true });
  }
}

/** Returns a port that no program uses, below those that systems give to outgoing connections. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = createServer().listen(port, "127.0.0.1");
    const isFree = await once(server, "listening").catch(() => null);
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}
