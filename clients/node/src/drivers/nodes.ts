import type { Address } from "../driver.js";

/** How a client maps the addresses that a cluster announces: natMap of ioredis, nodeAddressMap of node-redis. */
export type AddressMap = Readonly<Record<string, Address>> | ((address: string) => Address | null | undefined);

/** Returns where the client would connect to for an address that a redirection names. */
export function mapped(map: AddressMap | undefined, address: Address | undefined): Partial<Address> {
  if (!address) return {};
  const key = `${address.host}:${address.port}`;
  return (typeof map === "function" ? map(key) : map?.[key]) ?? address;
}

/** Returns one of the nodes of a cluster: the one that was taken before may be the one that is lost. */
export const anyOf = <T>(nodes: readonly T[]): T | undefined => nodes[Math.floor(Math.random() * nodes.length)];
