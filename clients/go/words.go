package redislock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// defaultLease is the lease if none is given. It is renewed.
	defaultLease = 30 * time.Second
	minLease     = time.Millisecond
	// maxLease is the longest lease, which the server can add to its time.
	maxLease = 100 * 365 * 24 * time.Hour
	// minSessionLease is the shortest lease of a session.
	minSessionLease = 100 * time.Millisecond
	// maxCount is the most permits and waiters.
	maxCount = 1<<31 - 1
	// latePart: the grant of a lock is late if this part of the lease has passed since the request.
	latePart = 20
	// renewals is how many times a lease is renewed in its length.
	renewals = 3
	// maxBlock is the longest wait that the server is asked for: a process that has ended keeps its queue entry no longer.
	maxBlock = 15 * time.Second
	// maxGrace is the longest time for which the lock of a session is kept after a lost connection.
	maxGrace = time.Second
	// silence is how long a server that does not reply counts as reachable. A wait is asked for again after it, too.
	silence = 5 * time.Second
	// late is how long after a deadline a reply shows that the server is there; probeAfter is when it is asked for one.
	late, probeAfter = time.Second, time.Second
	// maxOutage is how long a wait without a deadline survives an outage.
	maxOutage = time.Minute
	// ownRetries is how long a request that does not wait is sent again in an outage, as client libraries do.
	ownRetries = time.Second
	// useScripts is how long a server counts as one without the module.
	useScripts = 5 * time.Second
	// firstPause and lastPause are those between two requests where the server sends no messages. They grow.
	firstPause, lastPause = 10 * time.Millisecond, 100 * time.Millisecond
	// retry is the time between two attempts to renew, to check or to connect.
	retry = 100 * time.Millisecond
	// retryRelease is the time before RELEASE is sent once more.
	retryRelease = time.Second
)

type kind string

const (
	mutex     kind = "LOCK.ACQUIRE"
	reentrant kind = "LOCK.REENTER"
	shared    kind = "LOCK.SHARE"
)

// requestWords returns the request for a lock, without a wait.
func requestWords(name, token string, o *options) []string {
	words := append(make([]string, 0, 14), string(o.kind), name, token, "PX", millis(o.lease))
	if o.kind == reentrant {
		words = append(words, "HOLD", "1")
	}
	if o.permits > 0 {
		words = append(words, "LIMIT", strconv.Itoa(o.permits))
	}
	if o.session {
		words = append(words, "SESSION", "GRACE", millis(o.grace()))
	}
	return words
}

// waitWords adds to a request that it waits, and where the message goes.
func waitWords(words []string, wait time.Duration, channel string, o *options) []string {
	wait = min(max(wait, time.Millisecond), maxBlock)
	words = append(words, "BLOCK", millis(wait), "NOTIFY", channel)
	if o.maxWaiters > 0 {
		words = append(words, "MAXWAITERS", strconv.Itoa(o.maxWaiters))
	}
	return words
}

// millis returns a time in whole milliseconds, of which it is at least one.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// hashTag returns the part of a key that decides its slot: the text in the first braces, else all of it.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// slotOf returns the slot of a key in a cluster: CRC16 (XMODEM) of its hash tag.
func slotOf(key string) uint16 {
	var crc uint16
	for _, b := range []byte(hashTag(key)) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

// channelOf returns the channel of a connection, in a cluster one in the slot of a key. It is empty if no braces can name that slot.
func channelOf(id, key string, inCluster bool) string {
	if !inCluster {
		return "redis-lock:" + id
	}
	tag := hashTag(key)
	if strings.Contains(tag, "}") {
		return ""
	}
	return "redis-lock:{" + tag + "}:" + id
}

// counterOf returns the counter of a lock's fencing tokens, which is in its slot.
func counterOf(key string, inCluster bool) (string, error) {
	switch hasTag := hashTag(key) != key; {
	case !hasTag && !strings.ContainsAny(key, "{}"):
		return "{" + key + "}:fence", nil
	case !hasTag && inCluster:
		return "", fmt.Errorf("%w: no counter of fencing tokens can be in the slot of this name", ErrArgument)
	}
	return key + ":fence", nil
}

// labelOf returns the label of a token: what precedes the last colon.
func labelOf(token string) string {
	if colon := strings.LastIndexByte(token, ':'); colon > 0 {
		return token[:colon]
	}
	return ""
}

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

// scriptWords returns the call of the script that stands in for a command.
func scriptWords(script string, words []string) []string {
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
