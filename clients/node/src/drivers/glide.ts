import type { Driver, Link } from "../driver.js";
import { ServerError } from "../errors.js";
import { asReply } from "../replies.js";
import { idOf } from "./ids.js";

/** `GlideClient` or `GlideClusterClient` of @valkey/valkey-glide. */
export interface GlideClass<Config> {
  createClient(config: Config): Promise<GlideConnection>;
}

interface GlideConnection {
  customCommand(words: string[]): Promise<unknown>;
  close(): void;
}

/**
 * Returns the driver of valkey-glide, which routes commands in a cluster. It takes no messages of shard channels from a
 * server outside of a cluster: waits poll, and a loss is seen at the next renewal or at the end of the lease.
 *
 * @example
 * ```ts
 * const locks = createLocks(glide(GlideClient, { addresses: [{ host: "localhost" }] }));
 * ```
 */
export function glide<Config extends object>(library: GlideClass<Config>, config: Config): Driver {
  return {
    id: `glide ${idOf(library)} ${JSON.stringify(config)}`,
    keepsAlive: true,
    open: async (): Promise<Link> => {
      const client = await library.createClient({ ...config, clientName: "redis-lock-client", requestTimeout: 5_000 });
      return {
        send: (words) =>
          client.customCommand([...words]).catch((error: Error) => {
            throw asGlideReply(error);
          }),
        close: () => client.close(),
      };
    },
  };
}

/** GLIDE puts a colon behind the code of an error, and a sentence before the text of one without code. */
function asGlideReply(error: Error): unknown {
  const text = error.message.replace(/^([A-Z]+):/, "$1");
  return text.includes("signalled by the server") ? new ServerError(text) : asReply(new Error(text));
}
