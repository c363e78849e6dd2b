import { ServerError } from "../errors.js";

/**
 * Tells error replies from the errors of a library: a reply begins with its code in capital letters. Classes are no help,
 * as the package depends on no library, and names of classes are lost when a program is bundled.
 */
export function asReply(error: unknown): unknown {
  const isReply = error instanceof Error && !("syscall" in error) && /^[A-Z]{3,}\b/.test(error.message);
  return isReply ? new ServerError(error.message) : error;
}
