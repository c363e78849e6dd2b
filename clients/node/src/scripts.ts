import { ServerError } from "./errors.js";

/**
 * The same locks on a server without the module: scripts on the same keys, which reply as the commands do.
 *
 * A mutex is a String with the token; a re-entrant lock is a Hash with the owner and the number of holds, as in
 * Redisson; the lease is the key's time to live. The commands of the module use the same layout, so holders with and
 * without the module exclude each other.
 *
 * ARGV: the token, the lease in milliseconds, the type of the key.
 */

/** The beginning of each script reads the state of the lock. */
const BEGIN = `
local key, caller, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local kind, holder = redis.call('type', key)['ok'], false
if kind == 'string' then holder = redis.call('get', key)
elseif kind == 'hash' and redis.call('hlen', key) == 1 then holder = redis.call('hkeys', key)[1]
elseif kind ~= 'none' and kind ~= 'zset' then return redis.error_reply('WRONGTYPE The key holds no lock') end
`;

/** Stands in for LOCK.ACQUIRE and LOCK.REENTER. */
const TAKE = `${BEGIN}
if kind ~= 'none' and (kind ~= ARGV[3] or holder ~= caller) then return false end
if ARGV[3] == 'hash' then redis.call('hset', key, caller, 1) elseif kind == 'none' then redis.call('set', key, caller) end
if redis.call('pttl', key) < lease then redis.call('pexpire', key, lease) end
return 1
`;

/** Stands in for LOCK.EXTEND and, with the lease 0, which deletes the key, for LOCK.RELEASE. */
const EXTEND = `${BEGIN}
if holder ~= caller then return redis.error_reply('NOTHELD The token does not hold this lock') end
redis.call('pexpire', key, lease)
return lease
`;

/** Stands in for LOCK.INFO, with the fields that the package needs. */
const INFO = `${BEGIN}
return {'state', ({none = 'free', string = 'mutex', hash = 'reentrant', zset = 'shared'})[kind], 'owner', holder}
`;

/** What has no script: a command, or an option. */
const FEATURES = {
  SESSION: "session",
  LIMIT: "permits",
  NOTIFY: "wait",
  "LOCK.SHARE": "shared",
  "LOCK.FENCE": "fence",
};

/** Returns what stands in for a command. Throws a ServerError if there is no such thing. */
export function scriptOf([name = "", key = "", token, ...options]: readonly string[]): string[] {
  const [, feature] = Object.entries(FEATURES).find(([word]) => word === name || options.includes(word)) ?? [];
  if (feature) throw new ServerError(`MODULE ${feature} needs the module redis-lock, which is not loaded`);
  if (token === undefined) return ["EVAL", INFO, "1", key];
  const script = name === "LOCK.ACQUIRE" || name === "LOCK.REENTER" ? TAKE : EXTEND;
  return ["EVAL", script, "1", key, token, options[1] ?? "0", name === "LOCK.REENTER" ? "hash" : "string"];
}
