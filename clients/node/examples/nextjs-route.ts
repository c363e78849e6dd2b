// A route handler of Next.js: app/orders/[order]/payment/route.ts. A serverless function may make a client for each call:
// the locks of all calls in a process share one connection, which never keeps the process alive.
import { createClient } from "redis";
import { createLocks, LockTimeoutError } from "redis-lock-client";

export const runtime = "nodejs"; // The edge runtime opens no connections.

interface Context {
  readonly params: Promise<{ order: string }>;
}

export async function POST(request: Request, { params }: Context): Promise<Response> {
  const { order } = await params;
  const client = createClient({ url: process.env.REDIS_URL ?? "redis://localhost:6379" });
  await client.connect();
  try {
    // A browser that disconnects ends the wait.
    const options = { lease: 5_000, wait: 500, signal: request.signal };
    await using _lock = await createLocks(client).acquire(`order:${order}`, options);
    if (await client.exists(`payment:${order}`)) return Response.json({ error: "it is paid" }, { status: 409 });
    await client.set(`payment:${order}`, "paid");
    return Response.json({ order }, { status: 201 });
  } catch (error) {
    if (!(error instanceof LockTimeoutError)) throw error;
    return Response.json({ error: "this order is being paid" }, { status: 503 });
  } finally {
    await client.close();
  }
}
