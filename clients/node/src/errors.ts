/** The base of all errors of this package. Its text names the lock. */
export class LockError extends Error {
  override name = "LockError";

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
export class LockTimeoutError extends LockError {
  override name = "LockTimeoutError";
}

/** Returns the error of a wait. In a crowd it has no stack, which costs more time than all the rest of a wait. */
export function timeoutError(lock: string, wait: number | undefined, isInCrowd: boolean): LockTimeoutError {
  const { stackTraceLimit } = Error;
  if (isInCrowd) Error.stackTraceLimit = 0;
  const error = new LockTimeoutError(lock, `it was not free within ${wait} ms`);
  if (isInCrowd) Error.stackTraceLimit = stackTraceLimit;
  return error;
}

/** The lock is no longer held: its lease has ended, it was deleted, or its session has ended. */
export class LockLostError extends LockError {
  override name = "LockLostError";
}

/** As many as `maxWaiters` allows, or the server, wait for the lock already. */
export class LockQueueFullError extends LockError {
  override name = "LockQueueFullError";
}

/** The server has not loaded the module redis-lock, which this feature needs. */
export class ModuleNeededError extends LockError {
  override name = "ModuleNeededError";
}

/** The server cannot be reached. `cause` is the error of the client library. */
export class LockConnectionError extends LockError {
  override name = "LockConnectionError";
}

/** An error reply. */
export class ServerError extends Error {
  /** The first word of the reply, or UNKNOWN for a command that the server does not have. */
  readonly code: string;

  constructor(text: string) {
    super(text);
    this.code = /unknown command/i.test(text) ? "UNKNOWN" : (/^[A-Z]+/.exec(text)?.[0] ?? "ERR");
  }
}

/**
 * Tells error replies from the errors of a library: a reply begins with its code in capital letters. Classes are no help,
 * as the package depends on no library, and names of classes are lost when a program is bundled.
 */
export function asReply(error: unknown): unknown {
  const isReply = error instanceof Error && !("syscall" in error) && /^[A-Z]{3,}\b/.test(error.message);
  return isReply && !(error instanceof ServerError) ? new ServerError(error.message) : error;
}

/** A command got no reply. */
export class Disconnected extends Error {
  constructor(
    cause: unknown,
    /** The server may have executed the command. */
    readonly sent: boolean,
  ) {
    // An AggregateError of Node.js (one address, several protocols) has its texts in its parts.
    super(cause instanceof AggregateError ? cause.errors.join(", ") : String((cause as Error).message), { cause });
  }
}

/** The token does not hold the lock. */
const NOT_HELD = new Set(["NOTHELD", "NOTOWNER", "WRONGTYPE", "OTHERFORM"]);
/** The server cannot decide at the moment. */
const PASSING = new Set("LOADING READONLY NOREPLICAS MASTERDOWN CLUSTERDOWN TRYAGAIN MISCONF BUSY REPLACED".split(" "));

/** Whether the server says that the token does not hold the lock. */
export const isNotHeld = (error: unknown): boolean => error instanceof ServerError && NOT_HELD.has(error.code);

/** Whether the same command may succeed later. */
export const isPassing = (error: unknown): boolean =>
  error instanceof Disconnected || (error instanceof ServerError && PASSING.has(error.code));

/** Returns the error that a caller of the package receives. */
export function publicError(lock: string, error: unknown): unknown {
  // The reason of an abort may be anything.
  if (!(error instanceof Error)) return error;
  const { message } = error;
  if (/^(WRONGPASS|NOAUTH|ERR (invalid password|AUTH))/i.test(message)) {
    return new LockConnectionError(lock, `the server refuses the user or the password: ${message}`, { cause: error });
  }
  if (error instanceof Disconnected) {
    return new LockConnectionError(lock, `the server cannot be reached: ${message}`, { cause: error.cause });
  }
  if (!(error instanceof ServerError)) return error;
  if (error.code === "QUEUEFULL") return new LockQueueFullError(lock, "its queue is full");
  return new LockError(lock, message, { cause: error });
}
