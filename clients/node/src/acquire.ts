import { setMaxListeners } from "node:events";
import { debuglog } from "node:util";
import { isNotHeld, isPassing, ServerError } from "./errors.js";
import { fieldsOf, type Request } from "./request.js";
import type { Server } from "./server.js";
import { abortable, Deferred, now, pause } from "./time.js";

/** The longest wait that the server is asked for: a process that is gone without notice keeps its place no longer. */
const BLOCK_MS = 15_000;
/** The request is sent again after this time without a message. Less than lock.rejoin-grace-ms. */
const SILENCE_MS = 5_000;
/** How late the message that a wait has timed out may be. */
const LATE_MS = 250;
/** How long a server that has replied may be unreachable, if `wait` does not allow more. */
const OUTAGE_MS = 60_000;
const RETRY_MS = 100;
/** The pauses between two attempts where the server cannot send messages: they grow. */
const [FIRST_POLL_MS, LAST_POLL_MS] = [10, 250];
/** A grant that is heard later than this part of the lease is asked for again. */
const FRESH = 1 / 3;
/** How long a caller that gives up waits until the server has noted it. It is noted later, too. */
const WITHDRAWAL_MS = 1_000;
const RETRY_RELEASE_MS = 1_000;

const log = debuglog("redis-lock-client");

/**
 * Returns whether the lock was acquired within `wait` milliseconds; 0 is one attempt. If it was not, for whatever reason,
 * the server forgets the request.
 */
export async function acquire(server: Server, request: Request, wait: number, signal?: AbortSignal): Promise<boolean> {
  signal?.throwIfAborted();
  // One signal may end thousands of waits.
  if (signal) setMaxListeners(0, signal);
  const beganAt = now();
  const turn = wait > 0 ? server.queues.join(request.key) : undefined;
  let isHeld = false;
  try {
    // An outage is an error also if the turn has not come in time.
    const isFirst = await turn?.within(wait, false, signal);
    isHeld = isFirst
      ? await new Wait(server, request, beganAt, wait, signal).run()
      : await take(server, request, signal);
    return isHeld;
  } finally {
    const withdrawn = isHeld || !request.isKnown ? undefined : withdraw(server, request);
    if (turn) server.queues.leave(request.key, turn);
    await withdrawn;
  }
}

/** Asks for the lock without waiting. Returns whether it is held. */
export async function take(server: Server, request: Request, signal?: AbortSignal): Promise<boolean> {
  const wasKnown = request.isKnown;
  request.sentAt = now();
  const reply = await abortable(server.ask(request.key, request.take()), signal);
  if (reply === null && !wasKnown && !request.isDoubtful) request.isKnown = false;
  return reply !== null;
}

/**
 * Releases what the token of a request holds and cancels its wait. Returns whether it has held the lock. RELEASE is sent
 * again a second later, in the background, if it got no reply, or if a copy of the request may be executed after it.
 */
export async function release(
  server: Server,
  request: Request,
  until = now() + BLOCK_MS + request.wanted.lease,
): Promise<boolean> {
  const command = request.release();
  try {
    return (await server.ask(request.key, command)) !== null;
  } catch (error) {
    // After a lost connection, a repeated RELEASE finds nothing if the first one has worked.
    if (isNotHeld(error)) return command.isRepeated === true;
    request.isDoubtful ||= isPassing(error);
    throw error;
  } finally {
    if (request.isDoubtful && now() < until) {
      request.isDoubtful = false;
      setTimeout(() => release(server, request, until).catch(() => {}), RETRY_RELEASE_MS).unref();
    }
  }
}

/** Releases, and waits for the reply, but not long. */
function withdraw(server: Server, request: Request): Promise<void> {
  const replied = new Deferred<void>();
  release(server, request)
    .catch(() => {})
    .finally(replied.resolve);
  return replied.within(WITHDRAWAL_MS, undefined);
}

/** A wait of the first waiter in the local queue. */
class Wait {
  readonly #deadline: number;
  #poll = FIRST_POLL_MS;
  /** How many requests have joined the queue of the server. */
  #waits = 0;

  constructor(
    readonly server: Server,
    readonly request: Request,
    readonly beganAt: number,
    readonly wait: number,
    readonly signal: AbortSignal | undefined,
  ) {
    this.#deadline = beganAt + wait;
  }

  /** Returns whether the lock was granted before the deadline. An outage that lasts until then is an error. */
  async run(): Promise<boolean> {
    for (let takesFirst = true; ; ) {
      let rest = RETRY_MS;
      try {
        const outcome = await this.#attempt(takesFirst);
        if (typeof outcome === "boolean") return outcome;
        takesFirst = outcome === "poll";
        if (!takesFirst) continue;
        rest = this.#poll * (0.5 + Math.random() / 2);
        this.#poll = Math.min(this.#poll * 2, LAST_POLL_MS);
      } catch (error) {
        if (!isPassing(error) || now() >= this.#deadline || this.#isLongOutage()) throw error;
        takesFirst = true;
      }
      await pause(Math.min(rest, this.#deadline - now()), this.signal);
    }
  }

  #isLongOutage(): boolean {
    const since = this.wait === Number.POSITIVE_INFINITY ? now() : this.beganAt;
    return since - this.server.heardAt > OUTAGE_MS;
  }

  /** Returns whether the lock is held, "again" to ask again now, or "poll" after a pause. */
  async #attempt(takesFirst: boolean): Promise<boolean | "again" | "poll"> {
    const { server, request, signal } = this;
    const isLate = now() >= this.#deadline;
    if ((isLate || takesFirst) && (await take(server, request, signal))) return true;
    if (isLate) return false;
    if (log.enabled && this.#waits === 0) await this.#log();
    const channel = server.hasModule && (await abortable(server.connection(request.key).channel(request.key), signal));
    return channel ? this.#byMessage(channel) : "poll";
  }

  /** Waits in the queue of the server. */
  async #byMessage(channel: string): Promise<boolean | "again" | "poll"> {
    const { server, request, signal } = this;
    const remaining = Math.min(this.#deadline - now(), BLOCK_MS);
    const news = new Deferred<string>();
    server.news.once(`token ${request.token}`, news.resolve);
    request.sentAt = now();
    this.#waits++;
    try {
      const reply = await abortable(server.exchange(request.key, request.wait(remaining, channel)), signal);
      if (typeof reply === "number") return true;
      const event = await news.within(Math.min(SILENCE_MS, remaining + LATE_MS), "silence", signal);
      if (event === "granted") return this.#isFresh() || (await take(server, request, signal)) || "again";
      return event === "timeout" && now() >= this.#deadline - LATE_MS ? false : "again";
    } catch (error) {
      if (error instanceof ServerError && this.#hasNoChannel(error)) return "poll";
      throw error;
    } finally {
      server.news.off(`token ${request.token}`, news.resolve);
    }
  }

  /** The lease counts from the latest request, and the message may be that of an earlier one. */
  #isFresh(): boolean {
    return this.#waits === 1 && now() - this.request.sentAt <= this.request.wanted.lease * FRESH;
  }

  /** Whether the server says that it cannot send a message: no module, no subscription, or in a cluster a slot that has moved. */
  #hasNoChannel({ code }: ServerError): boolean {
    const { server, request } = this;
    const hasMoved = server.driver.inCluster && (code === "ERR" || code === "NOPERM");
    if (code !== "NOSUBSCRIBER" && !hasMoved) return code === "UNKNOWN";
    server.connection(request.key).forgetChannel();
    return true;
  }

  async #log(): Promise<void> {
    const { server, request } = this;
    const fields = fieldsOf(await server.ask(request.key, request.info()));
    const position = fields.has("waiters") ? `at position ${Number(fields.get("waiters")) + 1}` : "by polling";
    log('lock "%s": %s waits %s; held by %s', request.key, request.token, position, fields.get("owner"));
  }
}
