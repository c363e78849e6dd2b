package redislock;

import java.time.Duration;
import java.util.List;

/** The options of a step of a transcript. */
record Steps(LockSpec spec, Duration patience) {
    static Steps parse(Locks locks, List<String> words) {
        List<String> names = List.of(words.get(0).split(","));
        LockSpec spec = new LockSpec(locks, names);
        Duration patience = null;
        for (String word : words.subList(1, words.size())) {
            String[] pair = word.split("=", 2);
            String text = pair.length > 1 ? pair[1] : "";
            switch (pair[0]) {
                case "lease" -> spec = spec.lease(Duration.ofMillis(Long.parseLong(text)));
                case "wait" -> spec = spec.waitAtMost(patience = Duration.ofMillis(Long.parseLong(text)));
                case "permits" -> spec = spec.permits(Integer.parseInt(text));
                case "max_waiters" -> spec = spec.maxWaiters(Integer.parseInt(text));
                case "label" -> spec = spec.label(text);
                case "session" -> spec = spec.session();
                case "renew" -> spec = spec.renew();
                case "shared" -> spec = spec.shared();
                case "reentrant" -> spec = spec.reentrant("driver");
                default -> throw new UnsupportedOperationException(word);
            }
        }
        return new Steps(spec, patience);
    }

    static String name(Failure failure, String timeout) {
        return switch (failure.kind()) {
            case TIMEOUT -> timeout;
            case CANCELLED -> "cancelled";
            default -> "error " + failure.kind().name().toLowerCase(java.util.Locale.ROOT);
        };
    }

    static String name(Throwable e, String timeout) {
        if (e instanceof LockTimeoutException) {
            return timeout;
        } else if (e instanceof InterruptedException || e instanceof java.util.concurrent.CancellationException) {
            return "cancelled";
        }
        return "error " + (e instanceof LockLostException ? "lost" : e instanceof LockQueueFullException ? "full"
            : e instanceof ModuleNeededException ? "module" : e instanceof LockConnectionException ? "connection"
            : e instanceof IllegalArgumentException ? "argument" : e instanceof LockException ? "server" : e.toString());
    }
}
