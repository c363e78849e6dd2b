/** Locks in Redis and Valkey. */
module redislock {
    exports redislock;
}
