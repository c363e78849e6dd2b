package redislock;

import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;

/** Reports the label of the holder of a lock at each change of the holder. */
final class Observer {
    private final Engine engine;
    private final String name;
    private final Consumer<Optional<String>> then;
    private final Consumer<String> listener = event -> ask();
    private Optional<String> last;
    private Engine.Timer timer;
    private Link asked;
    private boolean isAsking;
    private boolean isChanged;
    private boolean isOver;

    Observer(Engine engine, String name, Consumer<Optional<String>> then) {
        this.engine = engine;
        this.name = name;
        this.then = then;
    }

    void start() {
        engine.listen(name, listener);
        ask();
    }

    void stop() {
        isOver = true;
        engine.cancel(timer);
        engine.unlisten(name, listener);
    }

    private void ask() {
        isChanged = isAsking;
        if (isAsking || isOver) {
            return;
        }
        isAsking = true;
        engine.cancel(timer);
        asked = engine.linkOf(name);
        asked.track();
        engine.read(List.of("LOCK.INFO", name), r -> {
            if (r.code().equals("NEEDSMODULE")) {
                askWithoutModule();
            } else {
                long lease = r.isFailed() ? 0 : r.value().field("lease-ms").number() + 1;
                replied(r, r.isFailed() ? null : r.value().field("owner"), lease > 0 ? lease * Words.MS : Words.SILENCE);
            }
        });
    }

    private void askWithoutModule() {
        engine.read(List.of("GET", name), r -> {
            if (r.code().equals("WRONGTYPE")) {
                engine.read(List.of("HKEYS", name), keys ->
                    replied(keys, keys.isFailed() || keys.value().items().isEmpty() ? Value.NULL : keys.value().items().get(0), Words.SECOND));
            } else {
                replied(r, r.value(), Words.SECOND);
            }
        });
    }

    /** @param again when to ask again if no message comes before: the end of a lease causes none */
    private void replied(Reply r, Value owner, long again) {
        isAsking = false;
        if (isOver || engine.isClosed) {
            return;
        }
        if (!r.isFailed()) {
            Optional<String> holder = owner.isNull() ? Optional.empty() : Optional.of(owner.text());
            if (!holder.equals(last)) {
                last = holder;
                engine.host.outside(() -> then.accept(holder.map(Words::label)));
            }
        }
        // The slot may have moved to a node that does not report changes yet.
        if (isChanged || !r.isFailed() && engine.linkOf(name) != asked) {
            ask();
        } else {
            timer = engine.after(r.isFailed() || !asked.isTracked() ? Words.RETRY : again, this::ask);
        }
    }
}
