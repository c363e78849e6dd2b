package redislock.tests;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Assumptions;

/** A server of a test, on 127.0.0.1. */
public final class TestServer implements AutoCloseable {
    private static final Random RANDOM = new Random();

    final int port = freePort();
    private final int busPort = freePort();
    private final Path folder;
    private final List<String> options;
    private Process process;

    private TestServer(Path folder, List<String> options) {
        this.folder = folder;
        this.options = options;
        Runtime.getRuntime().addShutdownHook(new Thread(this::stop));
    }

    /** Starts a server with the module. */
    public static TestServer start(String... options) {
        return start(false, options);
    }

    /** Starts a server without the module. */
    static TestServer plain() {
        TestServer server = new TestServer(folder(), List.of());
        server.restart();
        return server;
    }

    private static TestServer start(boolean isNode, String... options) {
        String module = System.getenv("MODULE");
        Assumptions.assumeTrue(module != null, "MODULE, the path of the module, is not set");
        List<String> all = new ArrayList<>(List.of("--loadmodule", module));
        all.addAll(List.of(options));
        TestServer server = new TestServer(folder(), all);
        if (isNode) {
            all.addAll(List.of("--cluster-enabled", "yes", "--cluster-port", Integer.toString(server.busPort)));
        }
        server.restart();
        return server;
    }

    /** Starts two nodes that have half of the slots each. */
    static List<TestServer> cluster() {
        List<TestServer> nodes = List.of(start(true), start(true));
        nodes.get(0).ask("CLUSTER", "ADDSLOTSRANGE", "0", "8191");
        nodes.get(1).ask("CLUSTER", "ADDSLOTSRANGE", "8192", "16383");
        nodes.get(0).ask("CLUSTER", "SET-CONFIG-EPOCH", "1");
        nodes.get(1).ask("CLUSTER", "SET-CONFIG-EPOCH", "2");
        TestServer other = nodes.get(1);
        nodes.get(0).ask("CLUSTER", "MEET", "127.0.0.1", Integer.toString(other.port), Integer.toString(other.busPort));
        for (TestServer node : nodes) {
            Tests.eventually("a cluster", () -> {
                String info = node.ask("CLUSTER", "INFO");
                return info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2");
            });
        }
        return nodes;
    }

    /** Starts a sentinel that watches a master by the name locks. */
    static TestServer sentinel(TestServer master) {
        try {
            Path folder = folder();
            List<String> options = new ArrayList<>();
            TestServer server = new TestServer(folder, options);
            Path file = folder.resolve("sentinel.conf");
            Files.writeString(file, "port " + server.port + "\nbind 127.0.0.1\nsentinel monitor locks 127.0.0.1 " + master.port + " 1\n"
                + "sentinel down-after-milliseconds locks 1000\nsentinel failover-timeout locks 2000\n");
            options.addAll(List.of(file.toString(), "--sentinel"));
            server.restart();
            return server;
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private static Path folder() {
        try {
            Path folder = Files.createTempDirectory("redis-lock");
            folder.toFile().deleteOnExit();
            return folder;
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    /** Returns a port that no program uses, below those of outgoing connections. */
    private static int freePort() {
        for (;;) {
            int port = 10_000 + RANDOM.nextInt(20_000);
            try (ServerSocket ignored = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return port;
            } catch (IOException e) {
                // Another one, then.
            }
        }
    }

    /** Starts the process, again after {@link #stop}. */
    void restart() {
        String program = System.getenv("SERVER");
        List<String> words = new ArrayList<>(List.of(program == null ? "redis-server" : program));
        if (!options.contains("--sentinel")) {
            words.addAll(List.of("--port", Integer.toString(port), "--bind", "127.0.0.1", "--dir", folder.toString(), "--save", ""));
        }
        words.addAll(options);
        File log = folder.resolve("log").toFile();
        try {
            process = new ProcessBuilder(words).redirectErrorStream(true).redirectOutput(log).start();
        } catch (IOException e) {
            throw new AssertionError(e);
        }
        Tests.eventually("a server", () -> tryAsk("PING").contains("PONG"));
    }

    /** Kills the process. */
    void stop() {
        if (process != null) {
            process.destroyForcibly();
            process.onExit().join();
        }
    }

    @Override
    public void close() {
        stop();
        File[] files = folder.toFile().listFiles();
        for (File file : files == null ? new File[0] : files) {
            file.delete();
        }
    }

    /** Stops the process without a sign to its clients (STOP), or lets it go on (CONT). */
    void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
        } catch (IOException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    String address() {
        return "127.0.0.1:" + port;
    }

    /** Returns the address for Locks.connect. */
    public String url() {
        return "redis://" + address();
    }

    /** Sends a command on a connection of its own, and returns the reply as text: a list has a line for each item. */
    public String ask(String... words) {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.setSoTimeout(10_000);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            out.writeBytes(("*" + words.length + "\r\n").getBytes(StandardCharsets.UTF_8));
            for (String word : words) {
                out.writeBytes(("$" + word.getBytes(StandardCharsets.UTF_8).length + "\r\n" + word + "\r\n").getBytes(StandardCharsets.UTF_8));
            }
            socket.getOutputStream().write(out.toByteArray());
            return read(new DataInputStream(socket.getInputStream()));
        } catch (IOException e) {
            throw new AssertionError(String.join(" ", words), e);
        }
    }

    /** Does as {@link #ask}, and returns an empty text if there is no reply. */
    String tryAsk(String... words) {
        try {
            return ask(words);
        } catch (AssertionError e) {
            return "";
        }
    }

    private static String read(DataInputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next; (next = in.readByte()) != '\n';) {
            line.append((char) next);
        }
        String text = line.substring(1).trim();
        if (line.charAt(0) == '$') {
            byte[] bytes = new byte[Math.max(0, Integer.parseInt(text) + 2)];
            in.readFully(bytes, 0, text.equals("-1") ? 0 : bytes.length);
            return text.equals("-1") ? "" : new String(bytes, 0, bytes.length - 2, StandardCharsets.UTF_8);
        } else if (line.charAt(0) == '*') {
            List<String> items = new ArrayList<>();
            for (int n = Integer.parseInt(text); n > 0; n--) {
                items.add(read(in));
            }
            return String.join("\n", items);
        }
        return text;
    }

    /** Returns a field of LOCK.INFO. */
    String info(String key, String field) {
        List<String> items = ask("LOCK.INFO", key).lines().collect(Collectors.toList());
        return items.get(items.indexOf(field) + 1);
    }

    /** Returns how often a command was called. */
    int calls(String command) {
        Matcher match = Pattern.compile("(?m)^cmdstat_" + Pattern.quote(command) + ":calls=(\\d+)").matcher(ask("INFO", "commandstats"));
        return match.find() ? Integer.parseInt(match.group(1)) : 0;
    }

    /** Returns the ids of the connections of the package. */
    List<String> connections() {
        Matcher match = Pattern.compile("id=(\\d+) .*name=redis-lock-client").matcher(ask("CLIENT", "LIST"));
        return match.results().map(one -> one.group(1)).toList();
    }

    /** Cuts the connections of the package. */
    void cut() {
        connections().forEach(id -> ask("CLIENT", "KILL", "ID", id));
    }
}
