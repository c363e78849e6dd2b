// A route that changes an account, one request at a time for each account. A busy account is 503 after five seconds.
import express, { type Express } from "express";
import { createLocks, type LockClient, LockQueueFullError, LockTimeoutError } from "redis-lock-client";

export function buildApp(client: LockClient): Express {
  const app = express();
  const locks = createLocks(client);
  const balances = new Map<string, number>();

  app.post("/accounts/:account/deposit", async (request, response) => {
    const { account } = request.params;
    try {
      await using _lock = await locks.acquire(`account:${account}`, { wait: 5_000, maxWaiters: 100 });
      const balance = (balances.get(account) ?? 0) + 1;
      await new Promise((resolve) => setTimeout(resolve, 10)); // a slow database
      balances.set(account, balance);
      response.json({ balance });
    } catch (error) {
      if (!(error instanceof LockTimeoutError || error instanceof LockQueueFullError)) throw error;
      response.status(503).json({ error: "busy" });
    }
  });
  return app;
}
