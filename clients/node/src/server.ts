import { Connection } from "./connection.js";
import type { Driver } from "./driver.js";
import { Disconnected, ModuleNeededError, ServerError } from "./errors.js";
import { LocalQueues } from "./queue.js";
import type { Command } from "./request.js";
import { slotOf } from "./slots.js";
import { inTime, now } from "./time.js";
import { Watch } from "./watch.js";

/** How long scripts are used before a command is tried again. */
export const SCRIPTS_MS = 5_000;
const MAX_REDIRECTIONS = 5;
/** A server that has replied so lately needs no question: the first waiter of a queue asks more often. */
const HEARD_MS = 6_000;
/** A server that cannot be reached is not tried again before this time, however many locks ask. */
const REOPEN_MS = 100;
/** A replica that was a master before: its address may lead elsewhere by now, but is not tried more often. */
const REPLICA_MS = 1_000;

/** What all locks of a process on one server, or in one cluster, share. */
export class Server {
  readonly queues = new LocalQueues();
  /** By token: what is called with the event that ends a wait. */
  readonly waits = new Map<string, (event: string) => void>();
  /** By key. */
  readonly watches = new Map<string, Watch>();
  /** When the server has replied last. */
  heardAt = Number.NEGATIVE_INFINITY;
  /** Without the module: until when scripts are used. */
  #scriptsUntil = 0;
  /** When a connection was lost. */
  #lostAt = Number.NEGATIVE_INFINITY;
  #hasWarned = false;
  #probe: Promise<unknown> | undefined;
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

  get isIdle(): boolean {
    return this.waits.size === 0 && this.watches.size === 0;
  }

  get hasModule(): boolean {
    return now() >= this.#scriptsUntil;
  }

  /** Returns the connection to the server of a key. */
  connection(key: string): Connection {
    return this.#connect((this.driver.inCluster && this.#slots.get(slotOf(key))) || "");
  }

  /**
   * Sends a command, or its script, and once again if the connection was lost: each counts once. A reply to the second one
   * is awaited until the given time.
   */
  async ask(key: string, command: Command, until = Number.POSITIVE_INFINITY): Promise<unknown> {
    for (;;) {
      try {
        const reply = this.exchange(key, this.hasModule ? command : scriptOf(key, command));
        if (!command.isRepeated || until === Number.POSITIVE_INFINITY) return await reply;
        return await inTime(reply, until - now());
      } catch (error) {
        const isUnknown = error instanceof ServerError && error.code === "UNKNOWN" && !this.hasModule;
        if (isUnknown && command.script) continue;
        if (isUnknown) throw moduleNeeded(key, command);
        if (!(error instanceof Disconnected && error.sent) || command.isRepeated || now() >= until) throw error;
        command.isRepeated = true;
      }
    }
  }

  /** Throws an error unless the server has replied lately, or does so now. Many ask by one command. */
  async confirm(key: string): Promise<void> {
    const isHeard = () => this.heardAt > this.#lostAt && now() - this.heardAt < HEARD_MS;
    if (isHeard()) return;
    // An error of rights is a reply, too.
    this.#probe ??= this.exchange(key, { words: ["GET", key] })
      .catch((error) => {
        if (!(error instanceof ServerError)) throw error;
      })
      .finally(() => {
        this.#probe = undefined;
      });
    await this.#probe;
  }

  /** Returns the reply of the server that has the key, which redirections name. */
  async exchange(key: string, { words, request }: Command): Promise<unknown> {
    let connection = this.connection(key);
    let isAsking = false;
    for (let redirections = 0; ; redirections++) {
      if (request?.isCancelled) throw new Disconnected("the request was cancelled", false);
      const wasKnown = request?.isKnown;
      if (request) request.isKnown = true;
      try {
        const reply = await connection.send(words, isAsking);
        this.heardAt = now();
        return reply;
      } catch (error) {
        if (!(error instanceof ServerError)) {
          if (request && (error as Disconnected).sent) request.isDoubtful = true;
          else if (request) request.isKnown = wasKnown === true;
          throw error;
        }
        this.heardAt = now();
        if (error.code === "UNKNOWN") this.#scriptsUntil = now() + SCRIPTS_MS;
        if (error.code === "READONLY" && now() - connection.openedAt > REPLICA_MS) connection.close();
        const [, code, slot, address] = /^(MOVED|ASK) (\d+) (\S+)/.exec(error.message) ?? [];
        if (!this.driver.inCluster || !address || redirections === MAX_REDIRECTIONS) throw error;
        if (code === "MOVED") this.#slots.set(Number(slot), address);
        isAsking = code === "ASK";
        connection = this.#connect(address);
      }
    }
  }

  #connect(address: string): Connection {
    const existing = this.#connections.get(address);
    if (existing) return existing;
    const connection = new Connection(this, address, this.#failedAt + REOPEN_MS - now());
    this.#connections.set(address, connection);
    if (!Server.#servers.has(this.driver.id)) Server.#servers.set(this.driver.id, this);
    return connection;
  }

  /** Returns what watches a key, for all its holds. */
  watch(key: string): Watch {
    const watch = this.watches.get(key) ?? new Watch(this, key);
    this.watches.set(key, watch);
    return watch;
  }

  /** Warns once. */
  warn(text: string): void {
    if (!this.#hasWarned) process.emitWarning(text);
    this.#hasWarned = true;
  }

  readonly message = (text: string): void => {
    const { event, token } = readMessage(text);
    this.waits.get(token)?.(event);
  };

  /** Null: all watched locks are read, and all waits ask again. */
  readonly changed = (key: string | null): void => {
    if (key !== null) {
      this.watches.get(key)?.changed();
      return;
    }
    for (const end of this.waits.values()) end("lost");
    for (const watch of this.watches.values()) watch.disconnected();
  };

  /** A connection is lost: waits ask again, watched locks are checked, and another node may have its slots. */
  lost(address: string, wasOpen: boolean): void {
    this.#connections.delete(address);
    for (const [slot, owner] of this.#slots) if (owner === address) this.#slots.delete(slot);
    if (wasOpen && this.#connections.size === 0 && this.isIdle) Server.#servers.delete(this.driver.id);
    this.#lostAt = now();
    // If none was open, two waits without a server would wake each other.
    if (wasOpen) this.changed(null);
    else this.#failedAt = now();
  }
}

/** Reads a message: `<event> <lease end> <db> <token> <key>`. */
export function readMessage(text: string): { event: string; token: string } {
  const [event = "", , , token = ""] = text.split(" ", 4);
  return { event, token };
}

function scriptOf(key: string, command: Command): Command {
  if (!command.script) throw moduleNeeded(key, command);
  return { ...command, words: command.script };
}

function moduleNeeded(key: string, { words }: Command): ModuleNeededError {
  const feature = words.includes("SESSION") ? "session" : words[0];
  return new ModuleNeededError(key, `${feature} needs the module redis-lock, which the server has not loaded`);
}
