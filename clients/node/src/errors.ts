/** The base of all errors of this package. Its text names the lock. */
export class LockError extends Error {
  constructor(
    /** The name of the lock. */
    readonly lock: string,
    text: string,
    options?: ErrorOptions,
  ) {
    super(`lock "${lock}": ${text}`, options);
  }
}

/**
 * The lock was not free within `wait`. The server has replied: an outage is a {@link LockConnectionError}. It has no stack
 * if more than 64 others of the process wait for the lock.
 */
export class LockTimeoutError extends LockError {}

/** The lock is no longer held: its lease has ended, it was deleted, or its session has ended. */
export class LockLostError extends LockError {}

/** As many as `maxWaiters` allows, or the server, wait for the lock already. */
export class LockQueueFullError extends LockError {}

/** The server has not loaded the module redis-lock, which this feature needs. */
export class ModuleNeededError extends LockError {}

/** The server cannot be reached. `cause` is the error of the client library. */
export class LockConnectionError extends LockError {}

// Bundlers shorten the names of classes, but not those of properties.
const named = {
  LockError,
  LockTimeoutError,
  LockLostError,
  LockQueueFullError,
  ModuleNeededError,
  LockConnectionError,
};
for (const [name, type] of Object.entries(named)) type.prototype.name = name;

/** An error reply. */
export class ServerError extends Error {
  /** The first word of the reply, or UNKNOWN for a command that the server does not have. */
  readonly code: string;

  constructor(text: string) {
    super(text);
    this.code = /unknown command/i.test(text) ? "UNKNOWN" : (/^[A-Z]+/.exec(text)?.[0] ?? "ERR");
  }
}
