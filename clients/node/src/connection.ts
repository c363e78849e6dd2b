import { randomBytes } from "node:crypto";
import type { Address, Link } from "./driver.js";
import { asReply, Disconnected, ServerError } from "./errors.js";
import type { Server } from "./server.js";
import { channelOf } from "./slots.js";
import { now, pause } from "./time.js";

/** Time is counted in ticks: after a stall of this process there is one, and replies are read before the next. */
const TICK_MS = 500;
/** No command of the package takes long, so a server that does not reply for five seconds is taken for lost: one tick more. */
const SILENCE_TICKS = 9;
/** A connection that no lock uses is closed after this time. */
const IDLE_TICKS = 20;

const sendWords = (link: Link, words: readonly string[]) => link.send(words);

/** A connection to one server: commands and replies in one order, messages, and their subscriptions. */
export class Connection {
  readonly openedAt = now();
  readonly #id = randomBytes(16).toString("hex");
  readonly #link: Promise<Link>;
  /** Keeps the process alive while a reply is awaited. The connection itself never does. */
  readonly #ticks = setInterval(() => this.#tick(), TICK_MS).unref();
  #opened: Link | undefined;
  #channel: Promise<string | undefined> | undefined;
  #tracking: Promise<unknown> | undefined;
  #awaited = 0;
  #quietTicks = 0;
  #stopOpening!: (error: Error) => void;
  isClosed = false;

  constructor(
    readonly server: Server,
    readonly address: string,
    delay: number,
  ) {
    // A library may try for ever.
    this.#link = new Promise<Link>((resolve, reject) => {
      this.#stopOpening = reject;
      this.#open(delay).then(resolve, reject);
    });
    this.#link.catch(() => this.close());
  }

  async #open(delay: number): Promise<Link> {
    if (delay > 0) await pause(delay);
    const { driver, message, changed } = this.server;
    const unsubscribed = () => {
      this.forgetChannel();
      changed(null);
    };
    const link = await driver.open({ message, changed, unsubscribed, lost: () => this.close() }, parse(this.address));
    this.#opened = link;
    if (this.isClosed) link.close();
    return link;
  }

  /** Sends a command, after ASKING if a node has named this one so. */
  send(words: readonly string[], isAsking = false): Promise<unknown> {
    if (!isAsking) return this.#run(sendWords, words);
    return this.#run(async (link) => (await Promise.all([link.send(["ASKING"]), link.send(words)]))[1]);
  }

  /** Runs a command on the link. Throws a ServerError for an error reply, else a Disconnected. */
  async #run<T>(
    command: (link: Link, words: readonly string[]) => T,
    words: readonly string[] = [],
  ): Promise<Awaited<T>> {
    if (this.#awaited++ === 0) {
      this.#quietTicks = 0;
      this.#ticks.ref();
    }
    let isSent = false;
    try {
      const link = this.#opened ?? (await this.#link);
      if (this.isClosed) throw new Error("the connection is closed");
      isSent = true;
      return await command(link, words);
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
    this.#channel ??= this.#setUp(
      (link) => link.subscribe?.(name).then(() => name),
      () => this.server.warn("waits for locks poll, because the user has no right to the channels redis-lock:*"),
    );
    return this.#channel;
  }

  /** Forgets the channel: in a cluster its slot has moved. */
  forgetChannel(): void {
    this.#channel = undefined;
  }

  /** Makes the server report changes. */
  async track(): Promise<void> {
    this.#tracking ??= this.#setUp((link) => link.track?.());
    await this.#tracking;
  }

  /** Returns a result, undefined if the library or the rights of the user do not allow it. */
  async #setUp<T>(run: (link: Link) => Promise<T> | undefined, forbidden?: () => void): Promise<T | undefined> {
    try {
      return await this.#run(run);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (error.code === "NOPERM") forbidden?.();
      // The slot of the channel has moved: other slots may have, too.
      if (error.code === "MOVED") this.close();
      return undefined;
    }
  }

  #tick(): void {
    this.#quietTicks++;
    const isSilent = this.#awaited > 0 && this.#quietTicks > SILENCE_TICKS;
    const ticks = this.server.driver.keepsAlive ? 0 : IDLE_TICKS;
    const isIdle = this.#awaited === 0 && this.#quietTicks > ticks && this.server.isIdle;
    if (isSilent || isIdle) this.close();
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    clearInterval(this.#ticks);
    this.#stopOpening(new Error("it does not reply"));
    this.#opened?.close();
    this.server.lost(this.address, this.#opened !== undefined);
  }
}

/** Returns the address of a node, undefined for the server that the client names. */
function parse(address: string): Address | undefined {
  const colon = address.lastIndexOf(":");
  return address ? { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) } : undefined;
}
