package redislock

// The same locks on a server without the module: scripts on the same keys in the same layout, which reply as the commands do. A mutex is
// a String with the token, a re-entrant lock a Hash with the owner and the number of holds.
//
// ARGV: the token, the lease in milliseconds, the type of the key.

const beginScript = `
local key, caller, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local kind, holder = redis.call('type', key)['ok'], false
if kind == 'string' then holder = redis.call('get', key)
elseif kind == 'hash' and redis.call('hlen', key) == 1 then holder = redis.call('hkeys', key)[1]
elseif kind ~= 'none' and kind ~= 'zset' then
    return redis.error_reply('WRONGTYPE Operation against a key holding the wrong kind of value')
end
local not_held = redis.error_reply(kind == 'none' and 'NOTHELD No client holds this lock' or 'NOTOWNER Another client holds this lock')
`

const takeScript = beginScript + `
if kind == 'none' then
    if ARGV[3] == 'hash' then redis.call('hset', key, caller, 1) else redis.call('set', key, caller) end
    redis.call('pexpire', key, lease)
    return 1
end
if kind ~= ARGV[3] or holder ~= caller then return false end
local left = redis.call('pttl', key)
if left >= 0 and lease > left then redis.call('pexpire', key, lease) end
return 1
`

const releaseScript = beginScript + `
if holder ~= caller then return not_held end
redis.call('del', key)
return 0
`

const extendScript = beginScript + `
if holder ~= caller then return not_held end
redis.call('pexpire', key, lease)
return lease
`

// scriptWords returns the call of the script that stands in for a command, nil if there is none.
func scriptWords(script string, words []string) []string {
	if script == "" {
		return nil
	}
	call := []string{"EVAL", script, "1", words[1], words[2]}
	if len(words) > 4 {
		call = append(call, words[4])
	}
	switch kind(words[0]) {
	case mutex:
		call = append(call, "string")
	case reentrant:
		call = append(call, "hash")
	}
	return call
}
