package redislock;

/** Why an operation has failed. The exception is made where the caller is, so that its stack is that of the caller. */
record Failure(Kind kind, String text, Throwable cause) {
    enum Kind { TIMEOUT, CANCELLED, LOST, FULL, MODULE, CONNECTION, ARGUMENT, SERVER }

    static final Failure LOST = new Failure(Kind.LOST, "it is no longer held", null);
    static final Failure CANCELLED = new Failure(Kind.CANCELLED, "the wait was cancelled", null);
    static final Failure CLOSED = connection("these Locks are closed");

    static Failure of(Reply reply) {
        String text = reply.errorText();
        return switch (reply.code()) {
            case "QUEUEFULL" -> new Failure(Kind.FULL, text, null);
            case "NEEDSMODULE" -> new Failure(Kind.MODULE, "the server needs the module redis-lock for " + text.substring(12), null);
            default -> reply.lost() instanceof IllegalArgumentException ? new Failure(Kind.ARGUMENT, text, reply.lost())
                : new Failure(reply.isDisconnected() || reply.isPassing() ? Kind.CONNECTION : Kind.SERVER, text, reply.lost());
        };
    }

    /** Returns the failure of a command of the holder, null if it has none. */
    static Failure ofHolder(Reply reply) {
        return !reply.isFailed() ? null : reply.isNotHeld() ? LOST : of(reply);
    }

    static Failure connection(String text) {
        return new Failure(Kind.CONNECTION, text, null);
    }

    static Failure argument(String text) {
        return new Failure(Kind.ARGUMENT, text, null);
    }

    RuntimeException on(String name, String operation) {
        return switch (kind) {
            case TIMEOUT -> new LockTimeoutException(name, operation, text, cause);
            case LOST -> new LockLostException(name, operation, text, cause);
            case FULL -> new LockQueueFullException(name, operation, text, cause);
            case MODULE -> new ModuleNeededException(name, operation, text, cause);
            case CONNECTION -> new LockConnectionException(name, operation, text, cause);
            case ARGUMENT -> new IllegalArgumentException(operation + " \"" + name + "\": " + text, cause);
            case CANCELLED, SERVER -> new LockException(name, operation, text, cause);
        };
    }
}
