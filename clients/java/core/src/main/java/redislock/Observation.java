package redislock;

/** What {@link Locks#observe} has begun. */
@FunctionalInterface
public interface Observation extends AutoCloseable {
    /** Ends it. */
    @Override
    void close();
}
