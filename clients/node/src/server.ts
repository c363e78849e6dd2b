import { Connection } from "./connection.js";
import type { Driver } from "./driver.js";
import { Disconnected, ModuleNeededError, ServerError } from "./errors.js";
import { LocalQueues } from "./queue.js";
import type { Command, Trace } from "./request.js";
import { slotOf } from "./slots.js";
import { now } from "./time.js";

/** How long scripts are used before a command is tried again. */
const SCRIPTS_MS = 5_000;
const MAX_REDIRECTIONS = 5;
/** A server that cannot be reached is not tried again before this time, however many locks ask. */
const REOPEN_MS = 100;
/** A replica that was a master before: its address may lead elsewhere by now, but is not tried more often. */
const REPLICA_MS = 1_000;

/** What all locks of a process on one server, or in one cluster, share. */
export class Server {
  readonly queues = new LocalQueues();
  /** For each token that waits: what the next message about it resolves. */
  readonly news = new Map<string, (event: string) => void>();
  /** For each watched key: what is called when it may have changed. */
  readonly watchers = new Map<string, Set<() => void>>();
  /** When the server has replied last. */
  heardAt = Number.NEGATIVE_INFINITY;
  /** Without the module: until when scripts are used. */
  #scriptsUntil = 0;
  /** When a connection could not be opened. */
  #failedAt = Number.NEGATIVE_INFINITY;
  /** By address; the one that the client names is "". */
  readonly #connections = new Map<string, Connection>();
  /** The addresses that redirections have named. */
  readonly #slots = new Map<number, string>();

  private constructor(readonly driver: Driver) {}

  static readonly #servers = new Map<string, Server>();

  /** Returns the one server of a driver in this process. */
  static of(driver: Driver): Server {
    const server = Server.#servers.get(driver.id) ?? new Server(driver);
    Server.#servers.set(driver.id, server);
    return server;
  }

  get #isIdle(): boolean {
    return this.news.size === 0 && this.watchers.size === 0;
  }

  get hasModule(): boolean {
    return now() >= this.#scriptsUntil;
  }

  /** Returns the connection to the server of a key. */
  connection(key: string): Connection {
    return this.#connect((this.driver.inCluster && this.#slots.get(slotOf(key))) || "");
  }

  /** Sends a command, or its script, and once again if the connection was lost: each counts once. */
  async ask(key: string, command: Command): Promise<unknown> {
    try {
      return await this.#commandOrScript(key, command);
    } catch (error) {
      if (!(error instanceof Disconnected && error.sent)) throw error;
      return this.#commandOrScript(key, command);
    }
  }

  async #commandOrScript(key: string, { words, script, trace }: Command): Promise<unknown> {
    if (this.hasModule) {
      try {
        return await this.exchange(key, words, trace);
      } catch (error) {
        if (!(error instanceof ServerError && error.code === "UNKNOWN")) throw error;
      }
    }
    if (script) return this.exchange(key, script, trace);
    const feature = words.includes("SESSION") ? "session" : words[0];
    throw new ModuleNeededError(key, `${feature} needs the module redis-lock, which the server has not loaded`);
  }

  /** Returns the reply of the server that has the key, which redirections name. */
  async exchange(key: string, words: readonly string[], trace?: Trace): Promise<unknown> {
    let connection = this.connection(key);
    let asking: readonly string[][] = [];
    for (let redirections = 0; ; redirections++) {
      if (trace?.isCancelled) throw new Disconnected("the request was cancelled", false);
      trace?.sentOn.add(connection);
      try {
        const reply = await connection.send(...asking, words);
        this.heardAt = now();
        return reply;
      } catch (error) {
        if (!(error instanceof ServerError)) {
          if (!(error instanceof Disconnected && error.sent)) trace?.sentOn.delete(connection);
          throw error;
        }
        this.#note(error, connection);
        const [, code, slot, address] = /^(MOVED|ASK) (\d+) (\S+)/.exec(error.message) ?? [];
        if (!this.driver.inCluster || !address || redirections === MAX_REDIRECTIONS) throw error;
        trace?.sentOn.delete(connection);
        if (code === "MOVED") this.#slots.set(Number(slot), address);
        asking = code === "ASK" ? [["ASKING"]] : [];
        connection = this.#connect(address);
      }
    }
  }

  /** Calls `changed` when a key may have changed, until the returned function is called. */
  watch(key: string, changed: () => void): () => void {
    const watchers = this.watchers.get(key) ?? new Set();
    this.watchers.set(key, watchers.add(changed));
    return () => {
      watchers.delete(changed);
      if (watchers.size === 0 && this.watchers.get(key) === watchers) this.watchers.delete(key);
    };
  }

  #note(error: ServerError, connection: Connection): void {
    this.heardAt = now();
    if (error.code === "UNKNOWN") this.#scriptsUntil = now() + SCRIPTS_MS;
    if (error.code === "READONLY" && now() - connection.openedAt > REPLICA_MS) connection.close();
  }

  #connect(address: string): Connection {
    const existing = this.#connections.get(address);
    if (existing) return existing;
    const colon = address.lastIndexOf(":");
    const connection = new Connection(
      this.driver,
      address === "" ? undefined : { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) },
      {
        message: (text) => this.#hear(text),
        changed: (key) => this.#changed(key),
        unsubscribed: () => this.#hearAll("lost"),
        lost: (wasOpen) => this.#forget(address, wasOpen),
        isIdle: () => this.#isIdle,
      },
      this.#failedAt + REOPEN_MS - now(),
    );
    this.#connections.set(address, connection);
    if (!Server.#servers.has(this.driver.id)) Server.#servers.set(this.driver.id, this);
    return connection;
  }

  /** Reads a message: `<event> <lease end> <db> <token> <key>`. */
  #hear(text: string): void {
    const [event = "", , , token = ""] = text.split(" ", 4);
    this.news.get(token)?.(event);
  }

  #changed(key: string | null): void {
    const watchers = key === null ? [...this.watchers.values()] : [this.watchers.get(key) ?? []];
    for (const changed of watchers.flatMap((set) => [...set])) changed();
  }

  /** A connection is lost: waits ask again, watched locks are checked, and another node may have its slots. */
  #forget(address: string, wasOpen: boolean): void {
    this.#connections.delete(address);
    if (!wasOpen) this.#failedAt = now();
    for (const [slot, owner] of this.#slots) if (owner === address) this.#slots.delete(slot);
    if (wasOpen && this.#connections.size === 0 && this.#isIdle) Server.#servers.delete(this.driver.id);
    // Otherwise two waits without a server would wake each other.
    if (!wasOpen) return;
    this.#hearAll("lost");
    this.#changed(null);
  }

  #hearAll(event: string): void {
    for (const hear of [...this.news.values()]) hear(event);
  }
}
