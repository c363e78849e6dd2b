// A route that changes an account, one request at a time for each account. A client that hangs up stops waiting.
import Fastify from "fastify";
import type { LockClient } from "redis-lock-client";
import { createLocks, LockTimeoutError } from "redis-lock-client";

export function buildApp(client: LockClient) {
  const app = Fastify();
  const locks = createLocks(client);
  const balances = new Map<string, number>();

  app.post<{ Params: { account: string } }>("/accounts/:account/deposit", async (request, reply) => {
    const { account } = request.params;
    const hangUp = new AbortController();
    request.raw.once("close", () => hangUp.abort());
    try {
      await using _lock = await locks.acquire(`account:${account}`, {
        lease: 10_000,
        wait: 5_000,
        signal: hangUp.signal,
      });
      const balance = balances.get(account) ?? 0;
      await new Promise((resolve) => setTimeout(resolve, 10)); // a slow database
      balances.set(account, balance + 1);
      return { balance: balance + 1 };
    } catch (error) {
      if (error instanceof LockTimeoutError) return reply.code(503).send({ error: "busy" });
      throw error;
    }
  });
  return app;
}
