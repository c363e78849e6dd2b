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

/** The settings of redlock. Jitter and threshold have no effect. */
const DEFAULTS = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
};

export type Settings = Readonly<typeof DEFAULTS>;

export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<LockClient>;
  readonly votesAgainst: Map<LockClient, Error>;
}

export interface ExecutionResult {
  readonly attempts: readonly Promise<ExecutionStats>[];
}

export type RedlockAbortSignal = AbortSignal & { error?: Error };

type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>;

/** A resource is held by another client. */
export class ResourceLockedError extends Error {
  override readonly name = "ResourceLockedError";
}

/** An operation has failed; `attempts` says why. */
export class ExecutionError extends Error {
  override readonly name = "ExecutionError";

  constructor(
    readonly attempts: ExecutionResult["attempts"],
    cause: Error,
  ) {
    super("The operation was unable to achieve a quorum during its retry window.", { cause });
  }
}

export class Lock {
  /** @internal */
  constructor(
    readonly redlock: Redlock,
    readonly resources: string[],
    readonly value: string,
    readonly attempts: ExecutionResult["attempts"],
    public expiration: number,
    /** @internal */
    readonly holds: readonly Hold[],
  ) {}

  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}

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
    if (!client || this.clients.size > 1) throw new Error("Redlock needs one client: there is no quorum.");
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
    return this.#all(lock.holds, (hold) => hold.release());
  }

  async extend(lock: Lock, duration: number, _settings?: Partial<Settings>): Promise<Lock> {
    checkDuration(duration);
    const expiration = this.#expiration(duration);
    const { attempts } = await this.#all(lock.holds, (hold) => hold.extend(duration));
    lock.expiration = 0;
    return new Lock(this, lock.resources, lock.value, attempts, expiration, lock.holds);
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

  async #acquire(names: string[], lease: number, settings: Partial<Settings> | undefined, renew: boolean) {
    checkDuration(lease);
    const { retryCount, retryDelay } = { ...this.settings, ...settings };
    const deadline = retryCount < 0 ? Number.POSITIVE_INFINITY : now() + retryCount * retryDelay;
    const value = newToken();
    const holds: Hold[] = [];
    let since = now();
    try {
      for (const name of [...new Set(names)].sort()) {
        const request = new Request(this.#prefix + name, { lease, kind: "mutex", renew }, value);
        const hold = await Hold.acquire(name, this.#server, request, Math.max(deadline - now(), 0));
        if (!hold) throw new ResourceLockedError(`The resource ${name} is locked.`);
        holds.push(hold);
      }
      since = now();
      if (holds.length > 1) await Promise.all(holds.map((hold) => hold.extend(lease)));
      else since = holds[0]?.request.sentAt ?? since;
    } catch (error) {
      await Promise.allSettled(holds.map((hold) => hold.release()));
      this.#fail(error);
    }
    return new Lock(this, names, value, [], this.#expiration(lease, since), holds);
  }

  #expiration(duration: number, since = now()): number {
    return Math.floor(Date.now() - now() + since) + duration - Math.round(this.settings.driftFactor * duration) - 2;
  }

  async #all(holds: readonly Hold[], run: (hold: Hold) => Promise<void>): Promise<ExecutionResult> {
    const results = await Promise.allSettled(holds.map(run));
    const failed = results.find((result) => result.status === "rejected");
    return failed ? this.#fail(failed.reason) : { attempts: this.#attempts() };
  }

  #attempts(error?: Error): ExecutionResult["attempts"] {
    const votesFor = new Set(error ? [] : this.clients);
    const votesAgainst = new Map(error ? [...this.clients].map((client) => [client, error]) : []);
    return [Promise.resolve({ membershipSize: 1, quorumSize: 1, votesFor, votesAgainst })];
  }

  #fail(error: unknown): never {
    this.emit("error", error);
    throw new ExecutionError(this.#attempts(error as Error), error as Error);
  }
}

function checkDuration(duration: number): void {
  if (!Number.isInteger(duration)) throw new Error("Duration must be an integer value in milliseconds.");
}
