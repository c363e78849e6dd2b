/** Returns one of the nodes of a cluster: the one that was taken before may be the one that is lost. */
export const anyOf = <T>(nodes: readonly T[]): T | undefined => nodes[Math.floor(Math.random() * nodes.length)];
