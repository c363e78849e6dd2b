package bench;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import java.util.function.Function;
import java.util.function.IntFunction;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisClientConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import redis.clients.jedis.Connection;
import redislock.Hold;
import redislock.Locks;
import redislock.Server;

/**
 * Measures the package and others of the same purpose in one run: SERVER=redis-server MODULE=libredis_lock.so mvn -Pbench -pl core,bench
 * -DskipTests verify. Only the ratios within one run say something.
 */
public final class Bench {
    private static final AtomicInteger COUNT = new AtomicInteger();

    /** Acquires a lock, and returns its release, which the same thread calls. */
    private interface Acquire {
        AutoCloseable lock(String name) throws InterruptedException;
    }

    /** What a process has: a connection of its own, or several. */
    private record Peer(Acquire acquire, AutoCloseable end) implements AutoCloseable {
        @Override
        public void close() throws Exception {
            end.close();
        }
    }

    private static final Map<String, Function<Integer, Peer>> PEERS = new TreeMap<>(Map.of(
        "0 redis-lock", port -> {
            Locks locks = Locks.of(new Server("bench " + COUNT.incrementAndGet(), to -> Server.open("127.0.0.1:" + port, null, true),
                () -> null, 0));
            return new Peer(name -> {
                Hold hold = locks.lock(name).acquire();
                return hold::release;
            }, locks);
        },
        "1 Redisson RLock", port -> {
            RedissonClient client = redisson(port);
            return peer(client::getLock, client::shutdown);
        },
        "2 Redisson RFairLock", port -> {
            RedissonClient client = redisson(port);
            return peer(client::getFairLock, client::shutdown);
        },
        "3 Spring spin, Lettuce", port -> spring(lettuce(port), RedisLockRegistry.RedisLockType.SPIN_LOCK),
        "4 Spring spin, Jedis", port -> spring(jedis(port), RedisLockRegistry.RedisLockType.SPIN_LOCK),
        "5 Spring Pub/Sub, Lettuce", port -> spring(lettuce(port), RedisLockRegistry.RedisLockType.PUB_SUB_LOCK)));

    private Bench() { }

    private static Peer peer(Function<String, Lock> locks, AutoCloseable end) {
        return new Peer(name -> {
            Lock lock = locks.apply(name);
            lock.lockInterruptibly();
            return lock::unlock;
        }, end);
    }

    private static RedissonClient redisson(int port) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        return Redisson.create(config);
    }

    private static RedisConnectionFactory lettuce(int port) {
        LettuceConnectionFactory factory = new LettuceConnectionFactory("127.0.0.1", port);
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    private static RedisConnectionFactory jedis(int port) {
        JedisClientConfiguration.JedisPoolingClientConfigurationBuilder pooled = JedisClientConfiguration.builder().usePooling();
        var pool = new org.apache.commons.pool2.impl.GenericObjectPoolConfig<Connection>();
        pool.setMaxTotal(100);
        pool.setMaxIdle(100);
        JedisConnectionFactory factory = new JedisConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", port),
            pooled.poolConfig(pool).build());
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    private static Peer spring(RedisConnectionFactory factory, RedisLockRegistry.RedisLockType type) {
        RedisLockRegistry registry = new RedisLockRegistry(factory, "bench");
        registry.setRedisLockType(type);
        return peer(registry::obtain, () -> {
            registry.destroy();
            ((org.springframework.beans.factory.DisposableBean) factory).destroy();
        });
    }

    public static void main(String[] args) throws Exception {
        System.out.printf("Redisson %s, Spring Integration %s, Spring Data Redis %s, Java %s%n", version(Redisson.class),
            version(RedisLockRegistry.class), version(RedisConnectionFactory.class), Runtime.version());
        int port = startServer();
        System.out.println(String.join(" ", ask(port, "INFO", "server").lines().filter(line -> line.contains("_version:")).toList()));
        cycles(port, "free lock, 1 thread", 1, n -> "free", 60, 50);
        cycles(port, "free locks, 100 threads", 100, n -> "free" + n, 20, 200);
        cycles(port, "one lock, 100 threads", 100, n -> "one", 3, 1500);
        for (String name : PEERS.keySet()) {
            handOver(name, port);
            crowd(name);
        }
        System.exit(0);
    }

    private static String version(Class<?> type) {
        return new File(type.getProtectionDomain().getCodeSource().getLocation().getPath()).getName().replaceAll(".*?-(\\d.*)\\.jar", "$1");
    }

    /** Acquires and releases as often as it can. Peers take short turns, because the load of a machine changes. */
    private static void cycles(int port, String what, int threads, IntFunction<String> name, int rounds, long millis) throws Exception {
        List<Peer> peers = PEERS.values().stream().map(open -> open.apply(port)).toList();
        double[][] rates = new double[peers.size()][rounds];
        double[] longest = new double[peers.size()];
        for (int n = 0; n < peers.size(); n++) {
            turn(peers.get(n), threads, name, threads > 1 ? 1000 : 1500);
        }
        for (int round = 0; round < rounds; round++) {
            for (int n = 0; n < peers.size(); n++) {
                double[] result = turn(peers.get(n), threads, name, millis);
                rates[n][round] = result[0];
                longest[n] = Math.max(longest[n], result[1]);
            }
        }
        String[] names = PEERS.keySet().toArray(String[]::new);
        for (int n = 0; n < peers.size(); n++) {
            double[] first = rates[0];
            double[] other = rates[n];
            double[] ratios = new double[rounds];
            Arrays.setAll(ratios, round -> first[round] / other[round]);
            System.out.printf("%-26s %-26s %8.0f a second (%.2f to 1), longest wait %.3f s%n", names[n].substring(2), what, middle(other.clone(), 50),
                middle(ratios, 50), longest[n]);
        }
        for (Peer peer : peers) {
            peer.close();
        }
    }

    private static double middle(double[] values, int percent) {
        Arrays.sort(values);
        return values[Math.min(values.length - 1, values.length * percent / 100)];
    }

    /** Returns the acquisitions a second and the longest wait in seconds. */
    private static double[] turn(Peer peer, int threads, IntFunction<String> name, long millis) throws Exception {
        CyclicBarrier barrier = new CyclicBarrier(threads + 1);
        long[] counts = new long[threads];
        long[] longest = new long[threads];
        List<Thread> all = new ArrayList<>();
        for (int n = 0; n < threads; n++) {
            int own = n;
            Thread thread = new Thread(() -> {
                try {
                    peer.acquire.lock(name.apply(own)).close();
                    barrier.await();
                    for (long at = System.nanoTime(), until = at + millis * 1_000_000; at < until; counts[own]++) {
                        AutoCloseable release = peer.acquire.lock(name.apply(own));
                        longest[own] = Math.max(longest[own], System.nanoTime() - at);
                        release.close();
                        at = System.nanoTime();
                    }
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            all.add(thread);
            thread.start();
        }
        barrier.await();
        long at = System.nanoTime();
        for (Thread thread : all) {
            thread.join();
        }
        return new double[] {Arrays.stream(counts).sum() * 1e9 / (System.nanoTime() - at), Arrays.stream(longest).max().getAsLong() / 1e9};
    }

    /** Measures the time from a release to the grant in another process. */
    private static void handOver(String name, int port) throws Exception {
        try (Peer one = PEERS.get(name).apply(port); Peer two = PEERS.get(name).apply(port)) {
            double[] times = new double[200];
            for (int n = 0; n < times.length; n++) {
                AutoCloseable release = one.acquire.lock("hand-over");
                CompletableFuture<Long> granted = new CompletableFuture<>();
                Thread thread = new Thread(() -> {
                    try (AutoCloseable ignored = two.acquire.lock("hand-over")) {
                        granted.complete(System.nanoTime());
                    } catch (Exception e) {
                        granted.completeExceptionally(e);
                    }
                });
                thread.start();
                Thread.sleep(15);
                long at = System.nanoTime();
                release.close();
                times[n] = (granted.get() - at) / 1e6;
                thread.join();
            }
            System.out.printf("%-26s release to grant: p50 %.2f ms, p99 %.2f ms%n", name.substring(2), middle(times, 50), middle(times, 99));
        }
    }

    /** Measures what 1,000 threads cost that wait for ten locks, on a server of their own. */
    private static void crowd(String name) throws Exception {
        int port = startServer();
        try (Peer holder = PEERS.get(name).apply(port); Peer waiters = PEERS.get(name).apply(port)) {
            ThreadPoolExecutor pool = new ThreadPoolExecutor(1000, 1000, 0, TimeUnit.SECONDS, new LinkedBlockingQueue<>());
            int threads = ManagementFactory.getThreadMXBean().getThreadCount();
            List<Future<?>> waits = new ArrayList<>();
            for (int n = 0; n < 10; n++) {
                holder.acquire.lock("crowd" + n);
            }
            for (int n = 0; n < 1000; n++) {
                String lock = "crowd" + n % 10;
                waits.add(pool.submit(() -> waiters.acquire.lock(lock)));
            }
            Thread.sleep(1500);
            int commands = number(port, "total_commands_processed");
            Thread.sleep(2000);
            int perSecond = (number(port, "total_commands_processed") - commands - 2) / 2;
            System.out.printf("%-26s 1,000 wait for ten locks: %d commands a second, %d connections, %d threads more than the waiters%n",
                name.substring(2), perSecond, number(port, "connected_clients") - 1,
                ManagementFactory.getThreadMXBean().getThreadCount() - threads - 1000);
            pool.shutdownNow();
            pool.awaitTermination(10, TimeUnit.SECONDS);
        }
    }

    private static int number(int port, String field) throws IOException {
        return ask(port, "INFO").lines().filter(line -> line.startsWith(field + ":")).mapToInt(line -> Integer.parseInt(line.split(":")[1]))
            .findFirst().getAsInt();
    }

    private static String ask(int port, String... words) throws IOException {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            socket.getOutputStream().write((String.join(" ", words) + "\r\nQUIT\r\n").getBytes());
            return String.join("\n", new BufferedReader(new InputStreamReader(socket.getInputStream())).lines().toList());
        }
    }

    private static int startServer() throws Exception {
        int port;
        try (ServerSocket socket = new ServerSocket(0)) {
            port = socket.getLocalPort();
        }
        Process server = new ProcessBuilder(System.getenv("SERVER"), "--port", Integer.toString(port), "--bind", "127.0.0.1", "--save", "",
            "--loadmodule", System.getenv("MODULE")).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        Runtime.getRuntime().addShutdownHook(new Thread(server::destroyForcibly));
        for (int n = 0;; n++) {
            try {
                ask(port, "PING");
                return port;
            } catch (IOException e) {
                if (n > 500) {
                    throw e;
                }
                Thread.sleep(10);
            }
        }
    }
}
