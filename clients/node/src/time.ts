/** Returns milliseconds of a clock that nobody sets. */
export const now = (): number => performance.now();

/** The pause before a command is sent again after a lost connection. */
export const RETRY_MS = 100;

/** Returns a time that Node.js takes for a timer: a longer one would fire immediately, and a negative one be a warning. */
export const timerMs = (ms: number): number => Math.max(0, Math.min(ms, 2 ** 31 - 1));

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
export function within<T>(promise: Promise<T>, ms: number, late: T, signal?: AbortSignal): Promise<T> {
  const over = new Deferred<T>();
  const timer = setTimeout(over.resolve, timerMs(ms), late);
  return abortable(Promise.race([promise, over.promise]), signal).finally(() => clearTimeout(timer));
}

/** A promise that is resolved from outside. */
export class Deferred<T> {
  resolve!: (value: T) => void;
  readonly promise = new Promise<T>((resolve) => {
    this.resolve = resolve;
  });
}
