package redislock;

/** The server has not loaded the module redis-lock, which this feature needs. */
public final class ModuleNeededException extends LockException {
    private static final long serialVersionUID = 1;

    ModuleNeededException(String name, String operation, String text, Throwable cause) {
        super(name, operation, text, cause);
    }
}
