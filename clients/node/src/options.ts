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
  /** The server renews the lease while this process is connected, and releases the lock when it is gone. Needs the module. */
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
  const { wait, permits, label, shared, reentrant, session, renew } = options;
  if (typeof name !== "string" || name === "") throw new LockError(String(name), "the name must be a text");
  checkLease(name, options.lease);
  if (session && options.lease < 100) throw new LockError(name, "a session needs a lease of 100 ms or more");
  if (wait !== undefined && !(wait >= 0)) throw new LockError(name, `wait must be milliseconds, 0 or more: ${wait}`);
  if (permits !== undefined && !isWhole(permits, 2 ** 31 - 1)) {
    throw new LockError(name, `permits must be a whole number from 1 on: ${permits}`);
  }
  if (label !== undefined && !/^[!-~]{1,64}$/.test(label)) {
    throw new LockError(name, "a label has 1 to 64 characters of ASCII, and no spaces");
  }
  if (reentrant && (shared || permits !== undefined)) throw new LockError(name, "a share cannot be re-entrant");
  if (session && renew) throw new LockError(name, "the server renews a session: give session or renew");
}

/** Throws a LockError unless it is a lease. */
export function checkLease(name: string, lease: number): void {
  if (!isWhole(lease, MAX_MS)) throw new LockError(name, `lease must be a whole number of milliseconds: ${lease}`);
}

const isWhole = (value: number, most: number): boolean => Number.isInteger(value) && value >= 1 && value <= most;
