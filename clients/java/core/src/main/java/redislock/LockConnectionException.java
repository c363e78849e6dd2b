package redislock;

/** The server cannot be reached, or cannot decide at the moment. */
public final class LockConnectionException extends LockException {
    private static final long serialVersionUID = 1;

    LockConnectionException(String name, String operation, String text, Throwable cause) {
        super(name, operation, text, cause);
    }
}
