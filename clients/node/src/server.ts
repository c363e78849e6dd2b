import { Connection } from "./connection.js";
import type { Driver } from "./driver.js";
import { ServerError } from "./errors.js";
import type { Queue } from "./queue.js";
import { Disconnected } from "./replies.js";
import type { Command, Request } from "./request.js";
import { scriptOf } from "./scripts.js";
import { slotOf } from "./slots.js";
import { now, within } from "./time.js";
import type { Watch } from "./watch.js";

/** How long scripts are used before a command is tried again. */
export const SCRIPTS_MS = 5_000;
const MAX_REDIRECTIONS = 5;
const SILENCE = Symbol("no reply");
/** A server that cannot be reached is not tried again before this time, however many locks ask. */
const REOPEN_MS = 100;
/** A replica that was a master before: its address may lead elsewhere by now, but is not tried more often. */
const REPLICA_MS = 1_000;

/** What all locks of a process on one server, or in one cluster, share. */
export class Server {
  /** By key: the local waiters. */
  readonly queues = new Map<string, Queue>();
  /** By token: what waits for an event. */
  readonly waits = new Map<string, Pick<Request, "wake">>();
  /** By key. */
  readonly watches = new Map<string, Watch>();
  /** The tokens by which this process holds locks. */
  readonly tokens = new Set<string>();
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

  get isIdle(): boolean {
    return this.waits.size === 0 && this.watches.size === 0;
  }

  get hasModule(): boolean {
    return now() >= this.#scriptsUntil;
  }

  /** Returns the connection to the server of a key, whose address redirections have named. */
  connection(key: string, address = (this.driver.inCluster && this.#slots.get(slotOf(key))) || ""): Connection {
    const existing = this.#connections.get(address);
    if (existing) return existing;
    const connection = new Connection(this, address, this.#failedAt + REOPEN_MS - now());
    this.#connections.set(address, connection);
    if (!Server.#servers.has(this.driver.id)) Server.#servers.set(this.driver.id, this);
    return connection;
  }

  /**
   * Returns the reply to a command, or to its script, from the server that has the key, which redirections name. If the
   * connection was lost, it is sent once again: it counts once. A reply to the second one is awaited until the given time.
   */
  async ask(key: string, command: Command, until = Number.POSITIVE_INFINITY): Promise<unknown> {
    const { request } = command;
    let [connection, isAsking, redirections] = [this.connection(key), false, 0];
    for (;;) {
      const words = this.hasModule || !command.words[0]?.startsWith("LOCK.") ? command.words : scriptOf(command.words);
      if ((request ?? command.holder)?.isCancelled)
        throw new Disconnected(new Error("the request was cancelled"), false);
      if (request) request.copies++;
      try {
        if (isAsking) connection.run((link) => link.send(["ASKING"])).catch(() => {});
        const sending = connection.run((link) => link.send(words));
        const reply = await (command.isRepeated ? within(sending, until - now(), SILENCE) : sending);
        if (reply === SILENCE) throw new Disconnected(new Error("it does not reply"), true);
        this.heardAt = now();
        if (request && reply === null) request.copies--;
        return reply;
      } catch (error) {
        const isDoubtful = error instanceof Disconnected && error.sent;
        if (request && isDoubtful) request.isDoubtful = true;
        else if (request) request.copies--;
        if (isDoubtful && !command.isRepeated && now() < until) {
          command.isRepeated = true;
          connection = this.connection(key);
          continue;
        }
        if (!(error instanceof ServerError)) throw error;
        this.heardAt = now();
        if (error.code === "UNKNOWN" && words[0]?.startsWith("LOCK.")) {
          this.#scriptsUntil = now() + SCRIPTS_MS;
          continue;
        }
        if (error.code === "READONLY" && now() - connection.openedAt > REPLICA_MS) connection.close();
        const [, code, slot, address] = /^(MOVED|ASK) (\d+) (\S+)/.exec(error.message) ?? [];
        if (!this.driver.inCluster || !address || redirections++ === MAX_REDIRECTIONS) throw error;
        if (code === "MOVED") this.#slots.set(Number(slot), address);
        isAsking = code === "ASK";
        connection = this.connection(key, address);
      }
    }
  }

  /** Reads a message: `<event> <lease end> <db> <token> <key>`. */
  readonly message = (text: string): void => {
    const [event = "", , , token = ""] = text.split(" ", 4);
    this.waits.get(token)?.wake(event);
  };

  /** A key has changed; null: any may have. */
  readonly changed = (key: string | null): void => {
    const watches = key === null ? [...this.watches.values()] : [this.watches.get(key)];
    for (const watch of watches) watch?.changed();
  };

  /** A connection is lost: waits ask again, watched locks are checked, and another node may have its slots. */
  lost(address: string, wasOpen: boolean): void {
    this.#connections.delete(address);
    for (const [slot, owner] of this.#slots) if (owner === address) this.#slots.delete(slot);
    if (wasOpen && this.#connections.size === 0 && this.isIdle) Server.#servers.delete(this.driver.id);
    if (wasOpen) {
      for (const wait of this.waits.values()) wait.wake("lost");
      for (const watch of this.watches.values()) watch.changed(true);
    } else this.#failedAt = now();
  }
}
