import * as errors from "./errors.js";

/** Returns the error of a wait. In a crowd it has no stack, which costs more time than all the rest of a wait. */
export function timeoutError(lock: string, wait: number | undefined, isInCrowd: boolean): errors.LockTimeoutError {
  const { stackTraceLimit } = Error;
  if (isInCrowd) Error.stackTraceLimit = 0;
  const error = new errors.LockTimeoutError(lock, `it was not free within ${wait} ms`);
  if (isInCrowd) Error.stackTraceLimit = stackTraceLimit;
  return error;
}

/**
 * Tells error replies from the errors of a library: a reply begins with its code in capital letters. Classes are no help,
 * as the package depends on no library, and names of classes are lost when a program is bundled.
 */
export function asReply(error: unknown): unknown {
  const isReply = error instanceof Error && !("syscall" in error) && /^[A-Z]{3,}\b/.test(error.message);
  return isReply && !(error instanceof errors.ServerError) ? new errors.ServerError(error.message) : error;
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
const NOT_HELD = "NOTHELD NOTOWNER WRONGTYPE OTHERFORM";
/** The server cannot decide at the moment. */
const PASSING = "LOADING READONLY NOREPLICAS MASTERDOWN CLUSTERDOWN TRYAGAIN MISCONF BUSY REPLACED";

/** Whether an error is a reply with one of some codes. */
export const hasCode = (error: unknown, codes: string): boolean =>
  error instanceof errors.ServerError && codes.split(" ").includes(error.code);

/** Whether the server says that the token does not hold the lock. */
export const isNotHeld = (error: unknown): boolean => hasCode(error, NOT_HELD);

/** Whether the same command may succeed later. */
export const isPassing = (error: unknown): boolean => error instanceof Disconnected || hasCode(error, PASSING);

/** Returns the error that a caller of the package receives. */
export function publicError(lock: string, error: unknown): unknown {
  // The reason of an abort may be anything.
  if (!(error instanceof Disconnected || error instanceof errors.ServerError)) return error;
  const { message, cause = error } = error;
  if (/^(WRONGPASS|NOAUTH|ERR (invalid password|AUTH))/i.test(message))
    return new errors.LockConnectionError(lock, `the server refuses the user or the password: ${message}`, { cause });
  if (error instanceof Disconnected)
    return new errors.LockConnectionError(lock, `the server cannot be reached: ${message}`, { cause });
  if (error.code === "QUEUEFULL") return new errors.LockQueueFullError(lock, "its queue is full");
  if (error.code === "MODULE") return new errors.ModuleNeededError(lock, message.slice("MODULE ".length));
  return new errors.LockError(lock, message, { cause });
}
