/** One connection of a client library. It is never opened again: the package opens the next one. */
export interface Link {
  /** Sends a command. Rejects with a ServerError for an error reply, and with any other error if there is no reply. */
  send(words: readonly string[]): Promise<unknown>;
  /** Subscribes to a shard channel. A link without this function waits by polling. */
  subscribe?(channel: string): Promise<unknown>;
  /** Makes the server report changes of the keys that are read. Without it, losses are seen at the next renewal. */
  track?(): Promise<unknown>;
  /** Closes the connection. Commands without a reply reject. */
  close(): void;
}

/** What a link reports. */
export interface LinkEvents {
  /** A message of a channel. */
  message(text: string): void;
  /** A key that was read has changed; null: any key may have. */
  changed(key: string | null): void;
  /** The connection is lost, or a subscription: in a cluster its slot has moved, and others may have. */
  lost(): void;
}

/** Opens connections with a client library. */
export interface Driver {
  /** Clients with the same id share a connection: address, user, database. */
  readonly id: string;
  /** What the client puts before the names of keys. */
  readonly prefix?: string;
  /** The package follows redirections, and each connection is to one node. */
  readonly inCluster?: boolean;
  /** Its connections keep the process alive, so they are closed as soon as no lock uses them. */
  readonly keepsAlive?: boolean;
  /** Opens a connection to the server of the client, or to the node of its cluster at an address, as redirections name it. */
  open(events: LinkEvents, address: string): Promise<Link>;
}
