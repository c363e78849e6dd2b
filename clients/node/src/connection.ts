import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Link } from "./driver.js";
import { ServerError } from "./errors.js";
import { asReply, Disconnected } from "./replies.js";
import type { Server } from "./server.js";
import { channelOf } from "./slots.js";
import { Deferred, now } from "./time.js";

/** Time is counted in ticks: after a stall of this process there is one, and replies are read before the next. */
const TICK_MS = 500;
/** No command of the package takes long, so a server that does not reply for five seconds is taken for lost: one tick more. */
const SILENCE_TICKS = 9;
/** A connection that no lock uses is closed after this time. */
const IDLE_TICKS = 20;

/** A connection to one server: commands and replies in one order, messages, and their subscriptions. */
export class Connection {
  readonly openedAt = now();
  readonly #id = randomUUID();
  readonly #closed = new Deferred<undefined>();
  /** A library may try for ever. */
  readonly #link: Promise<Link | undefined>;
  /** Keeps the process alive while a reply is awaited. The connection itself never does. */
  readonly #ticks = setInterval(() => this.#tick(), TICK_MS).unref();
  #opened: Link | undefined;
  /** The channel, which is forgotten when its slot in a cluster has moved. */
  subscription: Promise<string | undefined> | undefined;
  #tracking: Promise<unknown> | undefined;
  #awaited = 0;
  #quietTicks = 0;
  isClosed = false;

  constructor(
    readonly server: Server,
    readonly address: string,
    delay: number,
  ) {
    this.#link = Promise.race([this.#open(delay), this.#closed.promise]);
    this.#link.catch(() => this.close());
  }

  async #open(delay: number): Promise<Link> {
    if (delay > 0) await sleep(Math.ceil(delay));
    const { driver, message, changed } = this.server;
    const link = await driver.open({ message, changed, lost: () => this.close() }, this.address);
    this.#opened = link;
    if (this.isClosed) link.close();
    return link;
  }

  /** Runs a command on the link. Throws a ServerError for an error reply, else a Disconnected. */
  async run<T>(command: (link: Link) => T): Promise<Awaited<T>> {
    if (this.#awaited++ === 0) this.#quietTicks = 0;
    this.#ticks.ref();
    let isSent = false;
    try {
      const link = this.#opened ?? (await this.#link);
      if (!link || this.isClosed) throw new Error("it does not reply");
      isSent = true;
      return await command(link);
    } catch (raw) {
      const error = asReply(raw);
      if (error instanceof ServerError) throw error;
      // The library may notice the loss before it reports it.
      this.close();
      throw new Disconnected(error, isSent);
    } finally {
      this.#quietTicks = 0;
      if (--this.#awaited === 0) this.#ticks.unref();
    }
  }

  /** Returns the channel on which the waits of this connection end, undefined if there can be none for this key. */
  async channel(key: string): Promise<string | undefined> {
    // In a cluster it is in the slot of the key.
    const name = channelOf(this.#id, this.server.driver.inCluster ? key : undefined);
    if (name === null) return undefined;
    this.subscription ??= this.run((link) => link.subscribe?.(name).then(() => name)).catch((error) => {
      if (error.code === "NOPERM")
        process.emitWarning("locks poll: the user has no right to the channels redis-lock:*");
      throw error;
    });
    return this.subscription;
  }

  /** Makes the server report changes, if the library can. Throws a ServerError if the user has no right to it. */
  async track(): Promise<void> {
    this.#tracking ??= this.run((link) => link.track?.());
    await this.#tracking;
  }

  #tick(): void {
    const isAwaited = this.#awaited > 0;
    const most = isAwaited ? SILENCE_TICKS : this.server.driver.keepsAlive ? 0 : IDLE_TICKS;
    if (++this.#quietTicks > most && (isAwaited || this.server.isIdle)) this.close();
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    clearInterval(this.#ticks);
    this.#closed.resolve(undefined);
    this.#opened?.close();
    this.server.lost(this.address, this.#opened !== undefined);
  }
}
