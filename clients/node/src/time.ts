/** Returns milliseconds of a clock that nobody sets. */
export const now = (): number => performance.now();

/** The pause before a command is sent again after a lost connection. */
export const RETRY_MS = 100;
/** The longest time of a timer of Node.js: a longer one would fire immediately. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls a function after some milliseconds, after `MAX_TIMER_MS` at most. What has come from the server by then is read before:
 * after a stall of this process, its timers are first. A fraction would make all timers of Node.js slow that wait already.
 */
export const later = <T>(ms: number, run: (value: T) => void, value: T): NodeJS.Timeout =>
  setTimeout(() => setImmediate(run, value), Math.ceil(Math.max(0, Math.min(ms, MAX_TIMER_MS))));

/** Returns the result of a promise, unless the signal is aborted before: then its reason is thrown. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

/** Returns the result of a promise, `late` if there is none after `ms` milliseconds. */
export function within<T>(promise: Promise<T>, ms: number, late: T): Promise<T> {
  const over = new Deferred<T>();
  const timer = later(ms, over.resolve, late);
  return Promise.race([promise, over.promise]).finally(() => clearTimeout(timer));
}

/** A promise that is resolved from outside. */
export class Deferred<T> {
  resolve!: (value: T) => void;
  readonly promise = new Promise<T>((resolve) => {
    this.resolve = resolve;
  });
}
