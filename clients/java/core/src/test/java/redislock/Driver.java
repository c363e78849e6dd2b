package redislock;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** The driver of this package for clients/vectors/player.py. */
public final class Driver {
    private final Locks locks;
    private final Map<String, Hold> holds = new ConcurrentHashMap<>();
    private final Map<String, Thread> threads = new ConcurrentHashMap<>();
    private final Map<String, CompletableFuture<Boolean>> ends = new ConcurrentHashMap<>();

    private Driver(String port) {
        locks = Locks.connect("redis://" + Optional.ofNullable(System.getenv("DRIVER_USER")).orElse("") + "127.0.0.1:" + port);
    }

    public static void main(String[] args) throws Exception {
        warmUp();
        Driver driver = new Driver(args[0]);
        say("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            driver.step(List.of(line.trim().split(" +")));
        }
    }

    /** Loads the classes, which takes longer than some transcripts wait: a server replies once to each of three commands. */
    private static void warmUp() throws Exception {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread replies = new Thread(() -> {
                try (Socket socket = server.accept()) {
                    for (String reply : List.of("+OK\r\n", ":1\r\n", ":0\r\n")) {
                        socket.getInputStream().read(new byte[1 << 14]);
                        socket.getOutputStream().write(reply.getBytes(StandardCharsets.US_ASCII));
                    }
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            });
            replies.start();
            try (Locks locks = Locks.connect("redis://127.0.0.1:" + server.getLocalPort())) {
                locks.lock("door").waitAtMost(Duration.ofMinutes(1)).run(Hold::token);
            }
            replies.join();
        }
    }

    private static void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    private void step(List<String> words) {
        String id = words.get(1);
        List<String> rest = words.subList(2, words.size());
        Hold hold = holds.get(id);
        switch (words.get(0)) {
            case "observe" -> locks.observe(rest.get(0), label -> say(id + " leader " + label.orElse("none")));
            case "acquire", "several" -> run(id, "timeout", () -> held(id, Steps.parse(locks, rest).spec().acquire()));
            case "try" -> run(id, "busy", () -> {
                Optional<Hold> one = Steps.parse(locks, rest).spec().tryAcquire();
                return one.isPresent() ? held(id, one.get()) : "busy";
            });
            case "block" -> run(id, "timeout", () -> block(id, rest));
            case "end", "fail" -> Optional.ofNullable(ends.get(id)).ifPresent(end -> end.complete(words.get(0).equals("end")));
            case "cancel" -> threads.get(id).interrupt();
            case "release" -> run(id, "", () -> {
                hold.release();
                return "released";
            });
            case "extend" -> run(id, "", () -> {
                hold.extend(Duration.ofMillis(Long.parseLong(rest.get(0))));
                return "extended";
            });
            case "fence" -> run(id, "", () -> "fence " + hold.fence());
            case "watch" -> hold.onLost(() -> say(id + " lost"));
            case "detach" -> run(id, "", () -> "token " + hold.detach());
            case "attach" -> run(id, "", () -> {
                List<String> options = new java.util.ArrayList<>(rest);
                String token = options.remove(1);
                return held(id, Steps.parse(locks, options).spec().attach(token));
            });
            case "repeat" -> run(id, "", () -> "left " + repeat(Integer.parseInt(rest.get(0)), rest.subList(1, rest.size())));
            default -> say("unsupported");
        }
    }

    private void run(String id, String timeout, Callable<String> call) {
        Thread thread = new Thread(() -> {
            String outcome;
            try {
                outcome = call.call();
            } catch (IllegalStateException e) {
                outcome = e.getMessage();
            } catch (Exception e) {
                outcome = Steps.name(e, timeout);
            }
            say(id + " " + outcome);
        });
        threads.put(id, thread);
        thread.start();
    }

    private String held(String id, Hold hold) {
        holds.put(id, hold);
        return "held";
    }

    private String block(String id, List<String> words) throws InterruptedException {
        CompletableFuture<Boolean> end = new CompletableFuture<>();
        ends.put(id, end);
        return Steps.parse(locks, words).spec().call(hold -> {
            say(id + " held");
            if (!end.join()) {
                throw new IllegalStateException("failed");
            }
            return "released";
        });
    }

    private int repeat(int times, List<String> words) throws Exception {
        LockSpec spec = Steps.parse(locks, words).spec();
        int before = 0;
        for (int n = 0; n < times + 200; n++) {
            before = n == 200 ? objects() : before;
            spec.acquire().release();
        }
        return Math.max(0, objects() - before);
    }

    /** Returns how many objects of the package, and of the collections and futures that it uses, are alive. */
    private static int objects() throws Exception {
        String program = System.getProperty("java.home") + "/bin/jcmd";
        Process process = new ProcessBuilder(program, Long.toString(ProcessHandle.current().pid()), "GC.class_histogram").start();
        return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).lines()
            .map(line -> line.trim().split(" +"))
            .filter(line -> line.length > 3 && line[3].matches("(redislock|java.util)\\..*"))
            .mapToInt(line -> Integer.parseInt(line[1])).sum();
    }
}
