import { Deferred } from "./time.js";

/** How many requests for shares of one lock a process has under way at a time. */
export const MAX_TOGETHER = 64;

/** A place in a local queue. When its turn has come, the server may be asked. */
export class Turn {
  hasCome = false;
  #waiting: Deferred<boolean> | undefined;
  previous: Turn | undefined;
  next: Turn | undefined;

  constructor(readonly isShare: boolean) {}

  come(): void {
    this.hasCome = true;
    this.#waiting?.resolve(true);
  }

  /** Returns whether the turn has come after `ms` milliseconds. */
  within(ms: number, signal?: AbortSignal): Promise<boolean> {
    this.#waiting = new Deferred();
    return this.#waiting.within(ms, false, signal);
  }
}

/** The queue of one lock: the turns that have come are at its head. */
class Queue {
  first: Turn | undefined;
  #last: Turn | undefined;
  #lastCome: Turn | undefined;
  #underWay = 0;
  length = 0;

  add(turn: Turn): void {
    turn.previous = this.#last;
    if (this.#last) this.#last.next = turn;
    else this.first = turn;
    this.#last = turn;
    this.length++;
    this.#admit();
  }

  remove(turn: Turn): void {
    const { previous, next } = turn;
    if (previous) previous.next = next;
    else this.first = next;
    if (next) next.previous = previous;
    else this.#last = previous;
    this.length--;
    if (turn.hasCome) this.#underWay--;
    if (turn === this.#lastCome) this.#lastCome = previous;
    this.#admit();
  }

  #admit(): void {
    for (;;) {
      const last = this.#lastCome;
      const turn = last ? last.next : this.first;
      if (!turn || (last && !(last.isShare && turn.isShare && this.#underWay < MAX_TOGETHER))) return;
      this.#lastCome = turn;
      this.#underWay++;
      turn.come();
    }
  }
}

/**
 * The local queues: one for each lock, in the order of arrival. Only the first waiter of a process asks the server, so
 * that a process with a thousand waiters has one place in the queue of the server, as any other process has. Shares that
 * stand next to each other ask together.
 */
export class LocalQueues {
  readonly #queues = new Map<string, Queue>();

  /** Returns how many of this process wait for a lock, or ask for it. */
  length(key: string): number {
    return this.#queues.get(key)?.length ?? 0;
  }

  /** Joins the queue of a lock. */
  join(key: string, isShare: boolean): Turn {
    let queue = this.#queues.get(key);
    if (!queue) {
      queue = new Queue();
      this.#queues.set(key, queue);
    }
    const turn = new Turn(isShare);
    queue.add(turn);
    return turn;
  }

  /** Leaves the queue, in which the next waiters may have their turn now. */
  leave(key: string, turn: Turn): void {
    const queue = this.#queues.get(key);
    queue?.remove(turn);
    if (queue?.length === 0) this.#queues.delete(key);
  }
}
