import { Disconnected } from "./errors.js";

/** Returns milliseconds of a clock that nobody sets. */
export const now = (): number => performance.now();

/** The pause before a command is sent again after a lost connection. */
export const RETRY_MS = 100;

/** A timer of Node.js with a longer time fires immediately. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

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
export async function within<T>(promise: Promise<T>, ms: number, late: T, signal?: AbortSignal): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<T>((resolve) => {
    timer = setTimeout(resolve, Math.min(ms, MAX_TIMER_MS), late);
  });
  try {
    return await abortable(Promise.race([promise, over]), signal);
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the result of a promise. Throws a Disconnected if there is none after `ms` milliseconds. */
export async function inTime<T>(promise: Promise<T>, ms: number): Promise<T> {
  const result = await within<T | symbol>(promise, Math.max(ms, 0), LATE);
  if (result === LATE) throw new Disconnected(new Error("it does not reply"), true);
  return result as T;
}

const LATE = Symbol("late");

/** A promise that is settled from outside. */
export class Deferred<T> {
  resolve!: (value: T) => void;
  readonly promise = new Promise<T>((resolve) => {
    this.resolve = resolve;
  });

  /** Returns the value, `late` if there is none after `ms` milliseconds. */
  within(ms: number, late: T, signal?: AbortSignal): Promise<T> {
    return within(this.promise, ms, late, signal);
  }
}

/** Waits; ends early with the signal's reason. */
export const pause = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Deferred<void>().within(ms, undefined, signal);
