<?php
// Waits for a lock in slices: phpredis 5.3. It returns false for nil, and also for errors that begin with ERR or WRONGTYPE.
// OPT_PREFIX is not added to these commands: write the whole key. See docs/guides/clients.md.
const SLICE_MS = 2000;

function connect(): Redis
{
    $client = new Redis();
    $client->connect('127.0.0.1', 6379);
    return $client;
}

function ask(Redis $client, string ...$words): int|false
{
    $reply = $client->rawCommand(...$words);
    if ($reply === false && $client->getLastError() !== null) {
        throw new RedisException($client->getLastError());
    }
    return $reply;
}

function withLock(string $key, int $leaseMs, int $patienceMs, callable $work): bool
{
    $token = bin2hex(random_bytes(16));
    $end = microtime(true) + $patienceMs / 1000;
    $held = false;
    try {
        $waiting = connect();
        for ($left = $patienceMs; !$held && $left > 0; $left = (int) (($end - microtime(true)) * 1000)) {
            $block = min($left, SLICE_MS);
            $held = ask($waiting, 'LOCK.ACQUIRE', $key, $token, 'PX', "$leaseMs", 'BLOCK', "$block") === 1;
        }
        if ($held) {
            $work($token);
        }
        return $held;
    } finally {
        try {
            ask(connect(), 'LOCK.RELEASE', $key, $token);
        } catch (RedisException $error) {
            if ($held || !preg_match('/^NOT(HELD|OWNER)/', $error->getMessage())) {
                throw $error;
            }
        }
    }
}

withLock('door', 30000, 20000, function (string $token) {
    echo "the door is ours\n";
});
