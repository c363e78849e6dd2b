// A serverless handler, as in a route of Next.js: each call has a client of its own. The locks of all calls in a process
// share one connection, which is closed when it was idle for ten seconds, and never keeps the process alive.
import { createClient } from "redis";
import { createLocks } from "redis-lock-client";

export async function POST(request: Request): Promise<Response> {
  const client = createClient({ url: process.env.REDIS_URL ?? "redis://localhost:6379" });
  await client.connect();
  try {
    const { order } = (await request.json()) as { order: string };
    await using lock = await createLocks(client).tryAcquire(`order:${order}`, { lease: 5_000 });
    if (!lock) return Response.json({ error: "this order is being paid" }, { status: 409 });
    await client.incr(`payments:${order}`);
    return Response.json({ paid: order });
  } finally {
    await client.close();
  }
}
