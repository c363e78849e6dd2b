/** How a lock is acquired. */
export interface LockOptions {
  /** The lease in milliseconds: the lock is free at its end, unless it is extended before. Without it 30 s, which are renewed. */
  readonly lease?: number | undefined;
  /** How long to wait for the lock, in milliseconds. 0 is one attempt; without it the wait has no end. */
  readonly wait?: number | undefined;
  /** Ends the wait. The promise then rejects with its reason, after the server has forgotten the request. */
  readonly signal?: AbortSignal | undefined;
  /** This process renews the lease each time that a third of it has passed. */
  readonly renew?: boolean | undefined;
  /** The server renews the lease while this process is connected, and frees the lock a second after it has ended. Needs the module. */
  readonly session?: boolean | undefined;
  /** A share: any number of holders at a time, and no holder of the lock alone. Needs the module. */
  readonly shared?: boolean | undefined;
  /** A semaphore: a share of at most so many. Needs the module. */
  readonly permits?: number | undefined;
  /** In the callback of `using`, the same lock can be acquired again. It is released with the last release. */
  readonly reentrant?: boolean | undefined;
  /** The wait begins only if fewer wait for the lock; else it is a LockQueueFullError. */
  readonly maxWaiters?: number | undefined;
  /** What people see of the holder in LOCK.INFO: 1 to 64 characters without spaces. */
  readonly label?: string | undefined;
}

/** How a lock that is held already stays held. */
export type LeaseOptions = Pick<LockOptions, "lease" | "renew" | "session">;

/** The longest lease, 100 years: the server can add it to any time. */
export const MAX_LEASE_MS = 100 * 365 * 86_400_000;
/** The shortest lease of a session. */
export const MIN_SESSION_MS = 100;
/** The most permits and waiters. */
export const MAX_COUNT = 2 ** 31 - 1;

/** The lease without one. */
export const DEFAULT_LEASE_MS = 30_000;

/** Whether a lock may have other holders, too. */
export const isShare = ({ shared, permits }: LockOptions): boolean => shared === true || permits !== undefined;

/** Throws a TypeError or a RangeError for arguments that no server would take. */
export function checkOptions(name: string, options: LockOptions): void {
  if (typeof name !== "string") throw new TypeError("a lock needs a name, which is a text");
  if (name === "") throw new RangeError("the name of a lock is empty");
  if (typeof options !== "object" || options === null) throw new TypeError(`lock "${name}": the options are no object`);
  const { lease = DEFAULT_LEASE_MS, wait = 0, permits = 1, maxWaiters = 1, label = "-", session, signal } = options;
  checkNumber(name, "lease", lease, session ? MIN_SESSION_MS : 1, MAX_LEASE_MS);
  checkNumber(name, "wait", wait, 0);
  checkNumber(name, "permits", permits, 1, MAX_COUNT);
  checkNumber(name, "maxWaiters", maxWaiters, 1, MAX_COUNT);
  if (signal && !signal.throwIfAborted) throw new TypeError(`lock "${name}": signal must be an AbortSignal`);
  if (!/^[!-~]{1,64}$/.test(label)) throw new RangeError(`lock "${name}": label must have 1 to 64 characters of ASCII`);
  if (options.reentrant && isShare(options)) throw new TypeError(`lock "${name}": a share cannot be re-entrant`);
  if (session && options.renew) throw new TypeError(`lock "${name}": the server renews a session`);
}

/** Throws a TypeError or a RangeError for a number that is out of range. What has a highest value is a whole number. */
export function checkNumber(name: string, option: string, value: number, least: number, most?: number): void {
  if (typeof value !== "number") throw new TypeError(`lock "${name}": ${option} must be a number: ${value}`);
  const isRight = value >= least && (most === undefined || (Number.isInteger(value) && value <= most));
  const what = most ? "a whole number" : "a number";
  if (!isRight) throw new RangeError(`lock "${name}": ${option} must be ${what} from ${least} on: ${value}`);
}
