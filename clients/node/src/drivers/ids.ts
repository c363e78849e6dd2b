const ids = new WeakMap<object, number>();
let lastId = 0;

/** Returns a number for an object that no text describes, such as a provider of credentials, and other values unchanged. */
export function idOf(value: unknown): unknown {
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return value;
  const id = ids.get(value) ?? ++lastId;
  ids.set(value, id);
  return id;
}
