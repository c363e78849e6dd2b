import { randomBytes } from "node:crypto";
import type { Address, Driver, Link, LinkEvents } from "./driver.js";
import { Disconnected, ServerError } from "./errors.js";
import { sibling } from "./slots.js";
import { now, pause } from "./time.js";

/** Time is counted in ticks: after a stall of this process there is one, and replies are read before the next. */
const TICK_MS = 1_000;
/** No command of the package takes long, so a server that does not reply for this time is taken for lost. */
const SILENCE_TICKS = 5;
/** A connection that no lock uses is closed after this time. */
const IDLE_TICKS = 10;

/** A connection to one server: commands and replies in one order, messages, and their subscriptions. */
export class Connection {
  readonly openedAt = now();
  readonly #id = randomBytes(16).toString("hex");
  readonly #link: Promise<Link>;
  readonly #driver: Driver;
  /** Keeps the process alive while a reply is awaited. The connection itself never does. */
  readonly #ticks: NodeJS.Timeout;
  #opened: Link | undefined;
  #channel: Promise<string | null> | undefined;
  #isSubscribed = false;
  #tracking: Promise<boolean> | undefined;
  #awaited = 0;
  #quietTicks = 0;
  #isClosed = false;

  constructor(
    driver: Driver,
    address: Address | undefined,
    readonly events: Omit<LinkEvents, "lost"> & { isIdle(): boolean; lost(wasOpen: boolean): void },
    delay: number,
  ) {
    this.#driver = driver;
    this.#ticks = setInterval(() => this.#tick(), TICK_MS);
    const unsubscribed = () => {
      this.forgetChannel();
      events.unsubscribed();
    };
    const open = () => driver.open({ ...events, unsubscribed, lost: () => this.close() }, address);
    this.#link = delay > 0 ? pause(delay).then(open) : open();
    this.#link.then(
      (link) => {
        this.#opened = link;
        if (this.#isClosed) link.close();
      },
      () => this.close(),
    );
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Sends commands one after the other, with none between them. Returns the reply to the last one. */
  async send(...commands: (readonly string[])[]): Promise<unknown> {
    const replies = await this.#run((link) => Promise.all(commands.map((words) => link.send(words))));
    return replies.at(-1);
  }

  /** Runs a command on the link. Throws a ServerError for an error reply, else a Disconnected. */
  async #run<T>(command: (link: Link) => Promise<T>): Promise<T> {
    if (this.#awaited++ === 0) {
      this.#quietTicks = 0;
      this.#ticks.ref();
    }
    try {
      const link = await this.#link.catch((error) => {
        throw new Disconnected(error, false);
      });
      if (this.#isClosed) throw new Disconnected("the connection is closed", false);
      return await command(link);
    } catch (error) {
      if (error instanceof ServerError || error instanceof Disconnected) throw error;
      // The library may notice the loss before it reports it.
      this.close();
      throw new Disconnected(error, true);
    } finally {
      this.#quietTicks = 0;
      if (--this.#awaited === 0) this.#ticks.unref();
    }
  }

  /** Returns the channel on which the waits of this connection end, null if there can be none for this key. */
  async channel(key: string): Promise<string | null> {
    const name = this.#channelOf(key);
    if (name === null) return null;
    this.#channel ??= this.#setUp((link) => link.subscribe?.(name)).then((isThere) => {
      this.#isSubscribed = isThere;
      return isThere ? name : null;
    });
    return this.#channel;
  }

  /** Whether there is a channel for this key by now. */
  hasChannel(key: string): boolean {
    return this.#isSubscribed && this.#channelOf(key) !== null;
  }

  /** Forgets the channel, whose slot has moved. */
  forgetChannel(): void {
    this.#channel = undefined;
    this.#isSubscribed = false;
  }

  /** Returns a name for the channel. In a cluster it is in the slot of the key. */
  #channelOf(key: string): string | null {
    return sibling(this.#driver.inCluster ? key : "redis-lock", this.#id);
  }

  /** Makes the server report changes. Returns whether it does. */
  track(): Promise<boolean> {
    this.#tracking ??= this.#setUp((link) => link.track?.());
    return this.#tracking;
  }

  /** Returns whether the library and the rights of the user allow it. */
  async #setUp(run: (link: Link) => Promise<unknown> | undefined): Promise<boolean> {
    try {
      return await this.#run(async (link) => {
        const done = run(link);
        await done;
        return done !== undefined;
      });
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      // The slot of the channel has moved: other slots may have, too.
      if (error.code === "MOVED") this.close();
      return false;
    }
  }

  #tick(): void {
    this.#quietTicks++;
    const isSilent = this.#awaited > 0 && this.#quietTicks > SILENCE_TICKS;
    const ticks = this.#driver.keepsAlive ? 0 : IDLE_TICKS;
    const isIdle = this.#awaited === 0 && this.#quietTicks > ticks && this.events.isIdle();
    if (isSilent || isIdle) this.close();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#ticks);
    this.#opened?.close();
    this.events.lost(this.#opened !== undefined);
  }
}
