package redislock;

/** Another holder had the lock until the patience was over. An outage is a LockConnectionException. */
public final class LockTimeoutException extends LockException {
    private static final long serialVersionUID = 1;

    LockTimeoutException(String name, String operation, String text, Throwable cause) {
        super(name, operation, text, cause);
    }
}
