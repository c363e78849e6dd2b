package redislock;

import java.io.IOException;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/**
 * What a command has become: a reply, or none because its connection was lost.
 *
 * @param lost why there is no reply
 * @param wasSent the server may have executed the command
 * @param isRepeated it was sent more than one time
 */
record Reply(Value value, Throwable lost, boolean wasSent, Link link, boolean isRepeated) {
    private static final Set<String> NOT_HELD = Set.of("NOTHELD", "NOTOWNER", "WRONGTYPE", "OTHERFORM");
    private static final Set<String> PASSING = Set.of("LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF",
        "BUSY", "REPLACED");

    /** An error reply that has closed a connection. */
    static final class ServerException extends IOException {
        private static final long serialVersionUID = 1;

        ServerException(String text) {
            super(text);
        }
    }

    static Reply of(Value value) {
        return new Reply(value, null, true, null, false);
    }

    /** Stands for the reply to a command that is not sent after the release. */
    static final Reply RELEASED = of(Value.of('-', "NOTHELD The lock is released"));

    static Reply none(Throwable why) {
        return new Reply(null, why, false, null, false);
    }

    static Reply needsModule(List<String> words) {
        return of(Value.of('-', "NEEDSMODULE " + (words.contains("SESSION") ? "a session" : words.get(0))));
    }

    boolean isNull() {
        return value != null && value.isNull();
    }

    /** Returns whether it is the reply to a request that was granted. */
    boolean isGrant() {
        return value != null && value.kind() == ':';
    }

    boolean isDisconnected() {
        return value == null;
    }

    boolean isFailed() {
        return value == null || value.isError();
    }

    /** Returns whether the command was sent and has no reply. */
    boolean isDoubtful() {
        return value == null && wasSent || isRepeated;
    }

    String errorText() {
        return value != null ? value.text() : String.valueOf(lost.getMessage());
    }

    /** Returns the code of an error reply, also of one that has closed the connection, else an empty text. */
    String code() {
        if (value != null ? !value.isError() : !(lost instanceof ServerException)) {
            return "";
        }
        String text = errorText();
        return text.toLowerCase(Locale.ROOT).contains("unknown command") ? "UNKNOWN" : text.split(" ", 2)[0];
    }

    /** Returns whether the token does not hold the lock. */
    boolean isNotHeld() {
        return value != null && NOT_HELD.contains(code());
    }

    /** Returns whether the same command may succeed later. A server that refuses the user does so again. */
    boolean isPassing() {
        return PASSING.contains(code()) || isDisconnected() && code().isEmpty() && !(lost instanceof IllegalArgumentException);
    }
}
