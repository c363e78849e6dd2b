import { setMaxListeners } from "node:events";
import { debuglog } from "node:util";
import type { Connection } from "./connection.js";
import { Disconnected, ServerError } from "./errors.js";
import { fieldsOf, type Request } from "./request.js";
import type { Server } from "./server.js";
import { abortable, Deferred, now, pause, pauseInBackground } from "./time.js";

/** The longest wait that the server is asked for: a process that is gone without notice keeps its place no longer. */
const BLOCK_MS = 15_000;
/** The request is sent again after this time without a message. Less than lock.rejoin-grace-ms. */
const SILENCE_MS = 5_000;
/** How late the message that a wait has timed out may be. */
const LATE_MS = 250;
/** How long a server that has replied may be unreachable, if `wait` does not say less. */
const OUTAGE_MS = 60_000;
const RETRY_MS = 100;
/** The pauses between two attempts where the server cannot send messages: they grow. */
const [FIRST_POLL_MS, LAST_POLL_MS] = [10, 250];
/** A grant that is heard later than this part of the lease is asked for again. */
const FRESH = 1 / 3;
/** How long a caller that gives up waits until the server has noted it. It is noted later, too. */
const WITHDRAWAL_MS = 1_000;
const RETRY_WITHDRAWAL_MS = 1_000;

/** The server cannot decide at the moment; the same command may be sent again. */
const TRY_AGAIN = new Set("LOADING READONLY NOREPLICAS MASTERDOWN CLUSTERDOWN TRYAGAIN MISCONF BUSY".split(" "));

const log = debuglog("redis-lock-client");

/** Whether the same command may succeed later. */
export function isPassing(error: unknown): boolean {
  return error instanceof Disconnected || (error instanceof ServerError && TRY_AGAIN.has(error.code));
}

/**
 * Returns whether the lock was acquired within `wait` milliseconds; 0 is one attempt. If it was not, for whatever reason,
 * the server forgets the request.
 */
export async function acquire(server: Server, request: Request, wait: number, signal?: AbortSignal): Promise<boolean> {
  signal?.throwIfAborted();
  // One signal may end thousands of waits.
  if (signal) setMaxListeners(0, signal);
  if (wait === 0) return orWithdraw(server, request, () => take(server, request, signal));
  const deadline = now() + wait;
  const turn = server.queues.join(request.key);
  return orWithdraw(
    server,
    request,
    async () => {
      // An outage is an error also if the turn has not come in time.
      if (!(await turn.comes(deadline, signal))) return take(server, request, signal);
      return await new Wait(server, request, deadline, signal).run();
    },
    turn.leave,
  );
}

/** Runs an attempt, and cancels what it has asked for unless it succeeds. `leave` runs after that is sent. */
async function orWithdraw(
  server: Server,
  request: Request,
  attempt: () => Promise<boolean>,
  leave?: () => void,
): Promise<boolean> {
  let isHeld = false;
  try {
    isHeld = await attempt();
    return isHeld;
  } finally {
    const withdrawn = isHeld ? undefined : withdraw(server, request);
    leave?.();
    if (withdrawn) await Promise.race([withdrawn, pause(WITHDRAWAL_MS)]);
  }
}

/** Asks for the lock without waiting. Returns whether it is held. */
export async function take(server: Server, request: Request, signal?: AbortSignal): Promise<boolean> {
  const wasSent = request.noteSent();
  const reply = await abortable(server.ask(request.key, request.take()), signal);
  if (reply === null && !wasSent) request.sentOn.clear();
  return reply !== null;
}

/**
 * Releases what the token of a request holds and cancels its wait. RELEASE is sent until the server has replied on the
 * only connection that has carried the request: one that was sent earlier may be executed late.
 */
export async function withdraw(server: Server, request: Request): Promise<void> {
  const until = now() + BLOCK_MS + request.wanted.lease;
  while (request.sentOn.size > 0 && now() < until) {
    const sentOn = new Set<Connection>();
    try {
      await server.ask(request.key, request.release({ sentOn }));
    } catch (error) {
      if (isPassing(error)) sentOn.clear();
    }
    request.answeredOn(sentOn);
    if (request.sentOn.size === 0) return;
    // In a second nothing is left of the earlier connections.
    if (sentOn.size > 0) request.sentOn.clear();
    for (const connection of sentOn) request.sentOn.add(connection);
    await pauseInBackground(RETRY_WITHDRAWAL_MS);
  }
}

/** A wait of the first waiter in the local queue. */
class Wait {
  #poll = FIRST_POLL_MS;
  /** How many requests have joined the queue of the server. */
  #waits = 0;

  constructor(
    readonly server: Server,
    readonly request: Request,
    readonly deadline: number,
    readonly signal: AbortSignal | undefined,
  ) {}

  /** Returns whether the lock was granted before the deadline. An outage that lasts until then is an error. */
  async run(): Promise<boolean> {
    const beganAt = now();
    for (;;) {
      let rest = RETRY_MS;
      try {
        const outcome = await this.#attempt();
        if (typeof outcome === "boolean") return outcome;
        if (outcome === "again") continue;
        rest = this.#poll * (0.5 + Math.random() / 2);
        this.#poll = Math.min(this.#poll * 2, LAST_POLL_MS);
      } catch (error) {
        const heardAt = this.server.heardAt;
        const isLong = this.deadline === Number.POSITIVE_INFINITY && now() - heardAt > OUTAGE_MS;
        if (!isPassing(error) || isLong || now() >= this.deadline || heardAt < beganAt) throw error;
      }
      await pause(Math.min(rest, this.deadline - now()), this.signal);
    }
  }

  /** Returns whether the lock is held, "again" to ask again now, or "poll" after a pause. */
  async #attempt(): Promise<boolean | "again" | "poll"> {
    const { server, request, signal, deadline } = this;
    const isLate = now() >= deadline;
    if (isLate || !server.hasModule || !server.connection(request.key).hasChannel(request.key)) {
      if (await take(server, request, signal)) return true;
      if (isLate) return false;
    }
    if (log.enabled && request.times === 1) await this.#log();
    const channel = server.hasModule
      ? await abortable(server.connection(request.key).channel(request.key), signal)
      : null;
    return channel === null ? "poll" : this.#byMessage(channel);
  }

  /** Waits in the queue of the server. */
  async #byMessage(channel: string): Promise<boolean | "again" | "poll"> {
    const { server, request, signal, deadline } = this;
    const remaining = Math.min(deadline - now(), BLOCK_MS);
    const news = new Deferred<string>();
    server.news.set(request.token, news.resolve);
    request.noteSent();
    this.#waits++;
    try {
      const { words, trace } = request.wait(remaining, channel);
      const reply = await abortable(server.exchange(request.key, words, trace), signal);
      if (typeof reply === "number") return true;
      const event = await news.within(Math.min(SILENCE_MS, remaining + LATE_MS), "silence", signal);
      if (event === "granted") return this.#isFresh() || (await take(server, request, signal)) || "again";
      return event === "timeout" && now() >= deadline - LATE_MS ? false : "again";
    } catch (error) {
      if (error instanceof ServerError && this.#hasNoChannel(error)) return "poll";
      throw error;
    } finally {
      server.news.delete(request.token);
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
    if (code === "NOSUBSCRIBER" || hasMoved) server.connection(request.key).forgetChannel();
    return code === "NOSUBSCRIBER" || hasMoved || code === "UNKNOWN";
  }

  async #log(): Promise<void> {
    const { server, request } = this;
    const fields = fieldsOf(await server.ask(request.key, request.info()));
    const position = fields.has("waiters") ? `at position ${Number(fields.get("waiters")) + 1}` : "by polling";
    log('lock "%s": %s waits %s; held by %s', request.key, request.token, position, fields.get("owner"));
  }
}
