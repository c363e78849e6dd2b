/** The address of a server. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** How a client maps the addresses that a cluster announces: natMap of ioredis, nodeAddressMap of node-redis. */
export type AddressMap = Readonly<Record<string, Address>> | ((address: string) => Address | null | undefined);

/** Returns where the client would connect to for an address that a redirection names. */
export function mapped(map: AddressMap | undefined, address: string): Partial<Address> {
  const colon = address.lastIndexOf(":");
  if (colon < 0) return {};
  const named = typeof map === "function" ? map(address) : map?.[address];
  return named ?? { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
}

/** Returns one of the nodes of a cluster: the one that was taken before may be the one that is lost. */
export const anyOf = <T>(nodes: readonly T[]): T | undefined => nodes[Math.floor(Math.random() * nodes.length)];
