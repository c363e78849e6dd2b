import { Deferred, now } from "./time.js";

/**
 * The local queues: one for each lock, in the order of arrival. Only the first waiter of a process asks the server, so
 * that a process with a thousand waiters has one place in the queue of the server, as any other process has.
 */
export class LocalQueues {
  readonly #queues = new Map<string, Deferred<boolean>[]>();

  /** Joins the queue of a lock. */
  join(key: string): Turn {
    const queue = this.#queues.get(key) ?? [];
    this.#queues.set(key, queue);
    const turn = new Deferred<boolean>();
    queue.push(turn);
    if (queue.length === 1) turn.resolve(true);
    return {
      comes: (deadline, signal) => turn.within(deadline - now(), false, signal),
      leave: () => {
        const place = queue.indexOf(turn);
        queue.splice(place, 1);
        if (queue.length === 0) this.#queues.delete(key);
        else if (place === 0) queue[0]?.resolve(true);
      },
    };
  }
}

/** A place in the local queue of a lock. */
export interface Turn {
  /** Returns whether it is the first one before the deadline. */
  comes(deadline: number, signal?: AbortSignal): Promise<boolean>;
  /** Leaves the queue, in which the next waiter may be the first now. Called once. */
  leave(): void;
}
