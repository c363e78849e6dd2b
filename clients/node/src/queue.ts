import { Deferred } from "./time.js";

/**
 * The local queues: one for each lock, in the order of arrival. Only the first waiter of a process asks the server, so
 * that a process with a thousand waiters has one place in the queue of the server, as any other process has.
 */
export class LocalQueues {
  readonly #queues = new Map<string, Set<Deferred<boolean>>>();

  /** Joins the queue of a lock. The turn is resolved with true when it is the first one. */
  join(key: string): Deferred<boolean> {
    const turn = new Deferred<boolean>();
    const queue = this.#queues.get(key) ?? new Set();
    this.#queues.set(key, queue.add(turn));
    if (queue.size === 1) turn.resolve(true);
    return turn;
  }

  /** Leaves the queue, in which the next waiter may be the first now. */
  leave(key: string, turn: Deferred<boolean>): void {
    const queue = this.#queues.get(key);
    queue?.delete(turn);
    const [first] = queue ?? [];
    if (first) first.resolve(true);
    else this.#queues.delete(key);
  }
}
