import { LockError } from "./errors.js";

/** How a lock is acquired. */
export interface LockOptions {
  /** The lease in milliseconds: the lock is free at its end, unless it is extended before. */
  readonly lease: number;
  /** How long to wait for the lock, in milliseconds. 0 is one attempt; without it the wait has no end. */
  readonly wait?: number | undefined;
  /** Ends the wait. The promise then rejects with its reason, after the server has forgotten the request. */
  readonly signal?: AbortSignal | undefined;
  /** This process renews the lease each time that a third of it has passed. `using` does so without being asked. */
  readonly renew?: boolean | undefined;
  /** The server renews the lease while this process is connected, and frees the lock a second after it has ended. Needs the module. */
  readonly session?: boolean | undefined;
  /** A share: any number of holders at a time, and no holder of the lock alone. Needs the module. */
  readonly shared?: boolean | undefined;
  /** A semaphore: a share of at most so many. Needs the module. */
  readonly permits?: number | undefined;
  /** In the callback of `using`, the same lock can be acquired again. It is released with the last release. */
  readonly reentrant?: boolean | undefined;
  /** What people see of the holder in LOCK.INFO: 1 to 64 characters without spaces. */
  readonly label?: string | undefined;
}

/** The longest lease, so that the server can add it to its time. */
const MAX_MS = 2 ** 52;

/** Throws a LockError for arguments that no server would take. */
export function checkOptions(name: string, options: LockOptions): void {
  const { lease, wait = 0, permits = 1, label = "-", session } = options;
  const isShare = options.shared || options.permits !== undefined;
  check(String(name), typeof name === "string" && name !== "", "the name must be a text");
  checkLease(name, lease);
  check(name, !session || lease >= 100, "a session needs a lease of 100 ms or more");
  check(name, wait >= 0, `wait must be milliseconds, 0 or more: ${wait}`);
  check(name, isWhole(permits, 2 ** 31 - 1), `permits must be a whole number from 1 on: ${permits}`);
  check(name, /^[!-~]{1,64}$/.test(label), "a label has 1 to 64 characters of ASCII, and no spaces");
  check(name, !options.reentrant || !isShare, "a share cannot be re-entrant");
  check(name, !session || !options.renew, "the server renews a session: give session or renew");
}

/** Throws a LockError unless it is a lease. */
export function checkLease(name: string, lease: number): void {
  check(name, isWhole(lease, MAX_MS), `lease must be a whole number of milliseconds: ${lease}`);
}

function check(name: string, isRight: boolean, text: string): void {
  if (!isRight) throw new LockError(name, text);
}

const isWhole = (value: number, most: number): boolean => Number.isInteger(value) && value >= 1 && value <= most;
