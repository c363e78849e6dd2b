package redislock;

/** As many as maxWaiters or the server allows wait already. */
public final class LockQueueFullException extends LockException {
    private static final long serialVersionUID = 1;

    LockQueueFullException(String name, String operation, String text, Throwable cause) {
        super(name, operation, text, cause);
    }
}
