import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { debuglog } from "node:util";
import { Disconnected, isPassing, ServerError } from "./errors.js";
import type { Request } from "./request.js";
import { abortable, Deferred, now, pause } from "./time.js";

/** The request is sent again after this time without a message. Less than lock.rejoin-grace-ms. */
export const SILENCE_MS = 5_000;
/** How long a server that has replied may be unreachable, if `wait` does not end before. */
export const OUTAGE_MS = 60_000;
/** The pauses between two attempts in an outage, and where the server cannot send messages: they grow. */
const FIRST_PAUSE_MS = 10;
export const LAST_PAUSE_MS = 100;
/** How long a caller that gives up waits until the server has noted it. It is noted later, too. */
const WITHDRAWAL_MS = 1_000;

const log = debuglog("redis-lock-client");

/**
 * Returns whether the lock was acquired within `wait` milliseconds; 0 is one attempt. If it was not, for whatever reason,
 * the server forgets the request.
 */
export async function acquire(request: Request, wait: number, signal?: AbortSignal): Promise<boolean> {
  signal?.throwIfAborted();
  // One signal may end thousands of waits.
  if (signal) setMaxListeners(0, signal);
  const deadline = now() + wait;
  const { queues } = request.server;
  const { kind, maxWaiters = Number.POSITIVE_INFINITY } = request.wanted;
  if (wait > 0 && queues.length(request.key) >= maxWaiters) throw new ServerError("QUEUEFULL in this process");
  const turn = wait > 0 ? queues.join(request.key, kind === "shared") : undefined;
  let [isHeld, isOutage] = [false, false];
  try {
    // Without a turn in time, one attempt shows whether there is an outage, which is an error.
    // Without a turn in time nothing is asked, but a server that is silent or lost is an error.
    const isFirst = !turn || turn.hasCome || (await turn.within(wait, signal));
    if (isFirst) isHeld = await attempt(request, deadline, signal);
    else await abortable(request.server.confirm(request.key), signal);
    return isHeld;
  } catch (error) {
    isOutage = error instanceof Disconnected;
    throw error;
  } finally {
    const withdrawn = isHeld || !request.isKnown ? undefined : withdraw(request);
    if (turn) queues.leave(request.key, turn);
    if (!isOutage) await withdrawn;
  }
}

/** Releases, and waits for the reply, but not long. */
const withdraw = (request: Request): Promise<unknown> =>
  Promise.race([request.release().catch(() => {}), sleep(WITHDRAWAL_MS, undefined, { ref: false })]);

/** Asks for the lock until it is granted or the deadline is over. An outage that lasts until then is an error. */
async function attempt(request: Request, deadline: number, signal: AbortSignal | undefined): Promise<boolean> {
  for (let rest = FIRST_PAUSE_MS; ; ) {
    try {
      if (await request.take(signal, deadline + SILENCE_MS)) return true;
      if (now() >= deadline) return false;
      const outcome = await waitInQueue(request, deadline, signal);
      if (outcome === "held") return true;
      if (outcome === "again") continue;
    } catch (error) {
      if (!isPassing(error) || now() >= deadline || now() - request.server.heardAt > OUTAGE_MS) throw error;
    }
    await pause(Math.min(rest * (0.5 + Math.random() / 2), deadline - now()), signal);
    rest = Math.min(rest * 2, LAST_PAUSE_MS);
  }
}

/** Waits in the queue of the server. Returns whether the lock is held, or else when to ask again. */
async function waitInQueue(
  request: Request,
  deadline: number,
  signal: AbortSignal | undefined,
): Promise<"held" | "again" | "after a pause"> {
  const { server, key, token } = request;
  const connection = server.connection(key);
  const channel = server.hasModule && (await abortable(connection.channel(key), signal));
  if (!channel) return "after a pause";
  const news = new Deferred<string>();
  server.waits.set(token, news.resolve);
  try {
    if (await request.join(deadline - now(), channel, signal)) return "held";
    if (log.enabled)
      log('lock "%s": %s waits: %j', key, token, await server.exchange(key, { words: ["LOCK.INFO", key] }));
    const event = await news.within(Math.min(SILENCE_MS, deadline - now()), "silence", signal);
    // All others, such as "replaced" (a late copy of the request has its place), have the same answer.
    return event === "granted" ? "held" : "again";
  } catch (error) {
    if (!(error instanceof ServerError) || !hasNoChannel(error, server.driver.inCluster)) throw error;
    connection.forgetChannel();
    return "after a pause";
  } finally {
    server.waits.delete(token);
  }
}

/** Whether the server says that it cannot send a message: no module, no subscription, or in a cluster a slot that has moved. */
const hasNoChannel = ({ code }: ServerError, inCluster = false): boolean =>
  code === "NOSUBSCRIBER" || code === "UNKNOWN" || (inCluster && (code === "ERR" || code === "NOPERM"));
