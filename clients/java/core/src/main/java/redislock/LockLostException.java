package redislock;

/** The lock is no longer held: its lease has ended, it was deleted, or its session has ended. */
public final class LockLostException extends LockException {
    private static final long serialVersionUID = 1;

    LockLostException(String name, String operation, String text, Throwable cause) {
        super(name, operation, text, cause);
    }
}
