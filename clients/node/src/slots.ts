/** Returns the part of a key that decides its slot in a cluster: the text in the first braces, else all of it. */
export function hashTag(key: string): string {
  return /^[^{]*\{([^}]+)\}/s.exec(key)?.[1] ?? key;
}

/** Returns the slot of a key in a cluster: CRC16 (XMODEM) of its hash tag. */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(hashTag(key))) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}

/** Returns a name in the slot of `key`, or null if no braces can say so. */
export function sibling(key: string, rest: string): string | null {
  const tag = hashTag(key);
  return tag === "" || tag.includes("}") ? null : `{${tag}}:${rest}`;
}
