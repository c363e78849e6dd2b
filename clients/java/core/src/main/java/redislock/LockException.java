package redislock;

/** The lock could not be acquired, released, extended...: an error of the server, or one of the subclasses. */
public class LockException extends RuntimeException {
    private static final long serialVersionUID = 1;
    /** The name of the lock. */
    private final String name;
    /** What failed. */
    private final String operation;

    LockException(String name, String operation, String text, Throwable cause) {
        super(operation + " \"" + name + "\": " + text, cause);
        this.name = name;
        this.operation = operation;
    }

    /** Returns the name of the lock; several are separated by commas. */
    public final String name() {
        return name;
    }

    /** Returns what failed: acquire, release, extend, fence, attach, detach, hold. */
    public final String operation() {
        return operation;
    }
}
