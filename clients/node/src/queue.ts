import { Deferred } from "./time.js";

/** How many requests for shares of one lock a process has under way at a time. */
export const MAX_TOGETHER = 64;

/** A place in a queue. Resolved with true when its turn has come: then the server may be asked. */
export class Turn extends Deferred<boolean> {
  state: "waiting" | "come" | "left" = "waiting";
  isShare = false;
}

/**
 * The local queue of one lock, in the order of arrival. Only the first waiter of a process asks the server, so that a
 * process with a thousand waiters has one place in the queue of the server, as any other process has. Shares that stand
 * next to each other ask together.
 */
export class Queue {
  /** Those that wait are behind `#head`, and some that have left. */
  #turns: Turn[] = [];
  #head = 0;
  #underWay = 0;
  #isShared = false;
  /** How many of this process wait for the lock, or ask for it. */
  length = 0;

  join(isShare: boolean): Turn {
    const turn = new Turn();
    turn.isShare = isShare;
    this.#turns.push(turn);
    this.length++;
    this.#admit();
    return turn;
  }

  /** Leaves the queue, in which the next waiters may have their turn now. */
  leave(turn: Turn): void {
    if (turn.state === "come") this.#underWay--;
    turn.state = "left";
    this.length--;
    this.#admit();
  }

  #admit(): void {
    for (let turn = this.#turns[this.#head]; turn; turn = this.#turns[++this.#head]) {
      if (turn.state === "left") continue;
      if (this.#underWay > 0 && !(this.#isShared && turn.isShare && this.#underWay < MAX_TOGETHER)) break;
      this.#underWay++;
      this.#isShared = turn.isShare;
      turn.state = "come";
      turn.resolve(true);
    }
    if (this.#turns.length < 2 * this.length + MAX_TOGETHER) return;
    this.#turns = this.#turns.filter(({ state }) => state === "waiting");
    this.#head = 0;
  }
}
