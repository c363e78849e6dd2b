/**
 * The interface of redlock 5, for one server or cluster. A wait is one request in a fair queue, which lasts as long as
 * redlock's attempts do; several resources are acquired in the order of their names, all or none.
 *
 * @module
 */
import { EventEmitter } from "node:events";
import { driverOf, type LockClient } from "../drivers/index.js";
import { Hold } from "../hold.js";
import { newToken, Request } from "../request.js";
import { Server } from "../server.js";
import { now } from "../time.js";

export interface Settings {
  readonly driftFactor: number;
  readonly retryCount: number;
  readonly retryDelay: number;
  readonly retryJitter: number;
  readonly automaticExtensionThreshold: number;
}

export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<LockClient>;
  readonly votesAgainst: Map<LockClient, Error>;
}

type Attempts = readonly Promise<ExecutionStats>[];

export interface ExecutionResult {
  readonly attempts: Attempts;
}

export type RedlockAbortSignal = AbortSignal & { error?: Error };

/** A resource is held by another client. */
export class ResourceLockedError extends Error {
  override readonly name = "ResourceLockedError";
}

/** An operation has failed; `attempts` says why. */
export class ExecutionError extends Error {
  override readonly name = "ExecutionError";

  constructor(
    message: string,
    readonly attempts: Attempts,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

export class Lock {
  constructor(
    readonly redlock: Redlock,
    readonly resources: string[],
    readonly value: string,
    readonly attempts: Attempts,
    public expiration: number,
    /** @internal */
    readonly holds: readonly Hold[] = redlock.holdsOf(resources, value),
  ) {}

  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}

const DEFAULTS: Settings = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
};

export default class Redlock extends EventEmitter {
  readonly clients: Set<LockClient>;
  readonly settings: Settings;
  readonly #server: Server;
  readonly #prefix: string;

  constructor(clients: Iterable<LockClient>, settings: Partial<Settings> = {}) {
    super();
    // An event for an error ends the process if no listener hears it.
    this.on("error", () => {});
    this.clients = new Set(clients);
    this.settings = { ...DEFAULTS, ...settings };
    const [client] = this.clients;
    if (!client || this.clients.size > 1)
      throw new Error("Redlock must be instantiated with one client: there is no quorum.");
    const driver = driverOf(client);
    this.#server = Server.of(driver);
    this.#prefix = driver.prefix ?? "";
  }

  /** Does nothing: the package has no client of its own that a program has to close. */
  async quit(): Promise<void> {}

  async acquire(resources: string[], duration: number, settings?: Partial<Settings>): Promise<Lock> {
    return this.#acquire(resources, duration, settings, false);
  }

  async release(lock: Lock): Promise<ExecutionResult> {
    lock.expiration = 0;
    const results = await Promise.allSettled(lock.holds.map((hold) => hold.release()));
    return this.#result(results.find((result) => result.status === "rejected")?.reason);
  }

  async extend(existing: Lock, duration: number, _settings?: Partial<Settings>): Promise<Lock> {
    checkDuration(duration);
    const began = Date.now();
    const results = await Promise.allSettled(existing.holds.map((hold) => hold.extend(duration)));
    const { attempts } = this.#result(results.find((result) => result.status === "rejected")?.reason);
    existing.expiration = 0;
    return new Lock(
      this,
      existing.resources,
      existing.value,
      attempts,
      this.#expiration(began, duration),
      existing.holds,
    );
  }

  using<T>(resources: string[], duration: number, settings: Partial<Settings>, routine: Routine<T>): Promise<T>;
  using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>;
  async using<T>(resources: string[], duration: number, ...rest: unknown[]): Promise<T> {
    const routine = rest.pop() as Routine<T>;
    const lock = await this.#acquire(resources, duration, rest[0] as Partial<Settings>, true);
    const signal: RedlockAbortSignal = AbortSignal.any(lock.holds.map((hold) => hold.signal));
    signal.addEventListener("abort", () => {
      signal.error = signal.reason;
    });
    let result: T;
    try {
      result = await routine(signal);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    }
    await lock.release();
    return result;
  }

  /** @internal */
  holdsOf(resources: readonly string[], value: string, lease = 1): Hold[] {
    return resources.map((name) => new Hold(name, this.#server, this.#request(name, value, lease), false));
  }

  async #acquire(
    resources: string[],
    duration: number,
    settings: Partial<Settings> | undefined,
    renew: boolean,
  ): Promise<Lock> {
    checkDuration(duration);
    const { retryCount, retryDelay } = { ...this.settings, ...settings };
    const deadline = retryCount < 0 ? Number.POSITIVE_INFINITY : now() + retryCount * retryDelay;
    const value = newToken();
    const began = Date.now();
    const holds: Hold[] = [];
    try {
      for (const name of [...new Set(resources)].sort()) {
        const request = this.#request(name, value, duration);
        const hold = await Hold.acquire(name, this.#server, request, { wait: Math.max(deadline - now(), 0), renew });
        if (!hold) throw new ResourceLockedError(`The resource ${name} is locked.`);
        holds.push(hold);
      }
      if (holds.length > 1 && !renew) await Promise.all(holds.map((hold) => hold.extend(duration)));
    } catch (error) {
      await Promise.allSettled(holds.map((hold) => hold.release()));
      this.#result(error);
    }
    return new Lock(this, resources, value, [], this.#expiration(began, duration), holds);
  }

  #request(name: string, value: string, lease: number): Request {
    return new Request({ key: this.#prefix + name, lease, kind: "mutex", session: false }, value);
  }

  #expiration(began: number, duration: number): number {
    return began + duration - Math.round(this.settings.driftFactor * duration) - 2;
  }

  /** Returns the result of an operation. Throws an ExecutionError if it has failed. */
  #result(error?: unknown): ExecutionResult {
    const isFor = error === undefined;
    const reason = error instanceof Error ? error : new Error(String(error));
    const stats: ExecutionStats = {
      membershipSize: 1,
      quorumSize: 1,
      votesFor: isFor ? this.clients : new Set(),
      votesAgainst: new Map(isFor ? [] : [...this.clients].map((client) => [client, reason])),
    };
    const attempts = [Promise.resolve(stats)];
    if (isFor) return { attempts };
    this.emit("error", reason);
    throw new ExecutionError("The operation was unable to achieve a quorum during its retry window.", attempts, {
      cause: error,
    });
  }
}

type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>;

function checkDuration(duration: number): void {
  if (!Number.isInteger(duration)) throw new Error("Duration must be an integer value in milliseconds.");
}
