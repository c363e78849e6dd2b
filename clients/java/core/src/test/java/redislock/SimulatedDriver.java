package redislock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/** Does the steps of transcripts on the state machines. */
final class SimulatedDriver {
    private final Engine engine;
    private final Consumer<String> say;
    private final Map<String, Attempt> attempts = new HashMap<>();
    private final Map<String, List<Claim>> holds = new HashMap<>();
    private final Set<String> blocks = new HashSet<>();

    SimulatedDriver(Engine engine, Consumer<String> say) {
        this.engine = engine;
        this.say = say;
    }

    void step(List<String> words) {
        String id = words.get(1);
        List<String> rest = words.subList(2, words.size());
        List<Claim> hold = holds.get(id);
        switch (words.get(0)) {
            case "observe" -> new Observer(engine, rest.get(0), label -> say.accept(id + " leader " + label.orElse("none"))).start();
            case "acquire", "several", "try", "block" -> acquire(words.get(0), id, rest);
            case "end", "fail" -> end(id, words.get(0).equals("end"));
            case "cancel" -> attempts.get(id).cancel(Failure.CANCELLED);
            case "release" -> Attempt.release(hold, null, failure -> say(id, "released", failure));
            case "extend" -> {
                Claim claim = hold.get(0);
                claim.extend(Long.parseLong(rest.get(0)) * Words.MS, r -> say(id, "extended", claim.asHolder(r)));
            }
            case "fence" -> {
                Claim claim = hold.get(0);
                engine.ask(claim.fenceCommand(Words.counter(claim.name, false)), r ->
                    say(id, "fence " + (r.isFailed() ? "" : r.value().number()), claim.asHolder(r)));
            }
            case "watch" -> {
                AtomicBoolean isFirst = new AtomicBoolean(true);
                hold.forEach(claim -> claim.onLoss(() -> {
                    if (isFirst.getAndSet(false)) {
                        say.accept(id + " lost");
                    }
                }));
            }
            case "detach" -> say(id, "token " + hold.get(0).token, hold.get(0).detach());
            case "attach" -> {
                List<String> options = new ArrayList<>(rest);
                String token = options.remove(1);
                LockSpec spec = Steps.parse(null, options).spec();
                new Claim(engine, spec, spec.name(), token, new HashSet<>()).attach(outcome -> held(id, "", outcome));
            }
            case "repeat" -> repeat(id, Integer.parseInt(rest.get(0)), Steps.parse(null, rest.subList(1, rest.size())).spec());
            default -> throw new UnsupportedOperationException(words.toString());
        }
        engine.work();
    }

    private Attempt attempt(Steps steps, boolean isTry) {
        List<Claim> claims = steps.spec().names.stream()
            .map(name -> new Claim(engine, steps.spec(), name, label(steps.spec()) + Words.random(), new HashSet<>())).toList();
        return new Attempt(claims, steps.patience() == null ? 0 : engine.host.now() + steps.patience().toNanos(), isTry, new HashSet<>());
    }

    private static String label(LockSpec spec) {
        return spec.label == null ? "" : spec.label + ":";
    }

    private void acquire(String how, String id, List<String> words) {
        Attempt attempt;
        try {
            Steps steps = Steps.parse(null, words);
            steps.spec().checkAll();
            attempt = attempt(steps, how.equals("try"));
        } catch (IllegalArgumentException e) {
            say.accept(id + " error argument");
            return;
        }
        attempts.put(id, attempt);
        if (how.equals("block")) {
            blocks.add(id);
        }
        attempt.future.thenAccept(outcome -> held(id, how.equals("try") ? "busy" : "timeout", outcome));
        attempt.start();
    }

    private void held(String id, String timeout, Outcome outcome) {
        holds.put(id, outcome.claims());
        say.accept(id + " " + (outcome.failure() == null ? "held" : Steps.name(outcome.failure(), timeout)));
    }

    private void end(String id, boolean isRight) {
        if (blocks.contains(id)) {
            Attempt.release(holds.get(id), null, failure -> say(id, isRight ? "released" : "failed", failure));
        }
    }

    private void repeat(String id, int times, LockSpec spec) {
        if (times == 0) {
            say.accept(id + " left " + (engine.timers.size() + engine.topics.size()));
            return;
        }
        Attempt attempt = attempt(new Steps(spec, null), false);
        attempt.future.thenAccept(outcome -> Attempt.release(outcome.claims(), null, failure -> repeat(id, times - 1, spec)));
        attempt.start();
    }

    private void say(String id, String done, Failure failure) {
        say.accept(id + " " + (failure == null ? done : Steps.name(failure, "")));
    }
}
