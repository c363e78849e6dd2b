/** Returns the part of a key that decides its slot in a cluster: the text in the first braces, else all of it. */
const hashTag = (key: string): string => /^[^{]*\{([^}]+)\}/s.exec(key)?.[1] ?? key;

/** Returns the slot of a key in a cluster: CRC16 (XMODEM) of its hash tag. */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(hashTag(key))) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}

/** Returns the channel of a connection, in a cluster one in the slot of a key, or null if no braces can say so. */
export function channelOf(id: string, key?: string): string | null {
  if (key === undefined) return `redis-lock:${id}`;
  const tag = hashTag(key);
  return tag === "" || tag.includes("}") ? null : `redis-lock:{${tag}}:${id}`;
}

/** Returns the counter of a lock's fencing tokens, which is in its slot. */
export function counterOf(key: string, inCluster = false): string {
  const hasTag = hashTag(key) !== key;
  if (!hasTag && !/[{}]/.test(key)) return `{${key}}:fence`;
  if (!hasTag && inCluster) throw new RangeError(`lock "${key}": no name of a counter is in the slot of this name`);
  return `${key}:fence`;
}
