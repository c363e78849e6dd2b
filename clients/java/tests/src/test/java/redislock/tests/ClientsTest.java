package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import io.lettuce.core.SslVerifyMode;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redislock.Hold;
import redislock.LockConnectionException;
import redislock.Locks;
import redislock.Server;
import redislock.jedis.Jedis;
import redislock.lettuce.Lettuce;

/** Locks with the settings of client libraries. */
class ClientsTest extends Tests {
    private record Settings(TestServer server, String user, String password, SSLContext tls, int port, String master) { }

    enum Library {
        URI {
            @Override
            Server server(Settings settings) {
                String user = settings.user == null ? "" : settings.user + ":" + settings.password + "@";
                return settings.tls != null || settings.master != null ? null : Server.of("redis://" + user + "127.0.0.1:" + settings.port);
            }
        },
        LETTUCE {
            @Override
            Server server(Settings settings) {
                RedisURI.Builder builder = settings.master != null ? RedisURI.Builder.sentinel("127.0.0.1", settings.port, settings.master)
                    : RedisURI.builder().withHost("127.0.0.1").withPort(settings.port);
                if (settings.user != null) {
                    builder.withAuthentication(settings.user, settings.password);
                }
                RedisURI uri = builder.withSsl(settings.tls != null).withVerifyPeer(SslVerifyMode.FULL).build();
                return settings.tls != null ? Lettuce.server(uri, settings.tls) : Lettuce.server(uri);
            }
        },
        JEDIS {
            @Override
            @SuppressWarnings("deprecation") // The factory is the older way to configure TLS.
            Server server(Settings settings) {
                DefaultJedisClientConfig.Builder builder = DefaultJedisClientConfig.builder().user(settings.user).password(settings.password);
                if (settings.tls != null) {
                    builder.ssl(true).sslSocketFactory(settings.tls.getSocketFactory());
                }
                HostAndPort address = new HostAndPort("127.0.0.1", settings.port);
                return settings.master != null ? Jedis.server(settings.master, builder.build(), Set.of(address), builder.build())
                    : Jedis.server(address, builder.build());
            }
        };

        abstract Server server(Settings settings);
    }

    private Locks locks(Library library, TestServer server) {
        return open(Locks.of(library.server(new Settings(server, null, null, null, server.port, null))));
    }

    private Locks locks(Library library, TestServer server, String user, String password) {
        return open(Locks.of(library.server(new Settings(server, user, password, null, server.port, null))));
    }

    @ParameterizedTest
    @EnumSource
    void userOfReadmeHasAllRights(Library library) throws Exception {
        TestServer server = server();
        List<String> words = new ArrayList<>(List.of("ACL", "SETUSER", "worker", "on", ">secret", "resetchannels", "~*"));
        words.addAll(List.of("+lock.acquire", "+lock.reenter", "+lock.share", "+lock.release", "+lock.extend", "+lock.fence"));
        String readme = Files.readString(Path.of("../README.md"));
        String rights = readme.lines().filter(line -> line.startsWith("    &redis-lock:")).findFirst().orElseThrow();
        words.addAll(List.of(rights.trim().split(" ")));
        server.ask(words.toArray(String[]::new));
        Locks locks = locks(library, server, "worker", "secret");
        Hold hold = acquire(locks, "door");
        CompletableFuture<?> lost = lost(hold);
        Future<Hold> waiter = waiting(server, locks.lock("door"), "door", 1);
        server.ask("DEL", "door");
        soon(lost);
        soon(waiter).release();
        Hold page = acquire(locks.lock("page").permits(2));
        lost(page);
        page.fence();
        page.release();
        assertEquals("", server.ask("ACL", "LOG"));
        Locks wrong = locks(library, server, "worker", "wrong");
        took(0, 1000, () -> assertTrue(fails(LockConnectionException.class, wrong.lock("door")::acquire).getMessage().contains("WRONGPASS")));
    }

    @ParameterizedTest
    @EnumSource
    void clientsOfOneServerShareConnection(Library library) throws Exception {
        TestServer server = server();
        for (int n = 0; n < 3; n++) {
            acquire(locks(library, server).lock("door").shared());
        }
        assertEquals(1, server.connections().size());
        // The time-out of a client ends no wait.
        Hold hold = acquire(locks(library, server), "shelf");
        Future<Hold> waiter = waiting(server, process(server).lock("shelf"), "shelf", 1);
        pause(2500);
        assertEquals(2, server.connections().size());
        hold.release();
        soon(waiter).release();
    }

    @ParameterizedTest
    @EnumSource(names = {"LETTUCE", "JEDIS"})
    void locksWorkOverTls(Library library) throws Exception {
        TestServer server = server();
        Path store = Files.createTempDirectory("tls").resolve("store.p12");
        new ProcessBuilder(System.getProperty("java.home") + "/bin/keytool", "-genkeypair", "-keyalg", "EC", "-alias", "a", "-dname", "CN=test",
            "-ext", "SAN=ip:127.0.0.1", "-storetype", "PKCS12", "-storepass", "secret", "-keystore", store.toString()).start().waitFor();
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = new FileInputStream(store.toFile())) {
            keys.load(in, "secret".toCharArray());
        }
        KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        own.init(keys, "secret".toCharArray());
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("a", keys.getCertificate("a"));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(own.getKeyManagers(), trust.getTrustManagers(), null);
        ServerSocket proxy = open(tls.getServerSocketFactory().createServerSocket(0, 10, InetAddress.getLoopbackAddress()));
        start(() -> {
            for (;;) {
                Socket from = proxy.accept();
                Socket to = new Socket(InetAddress.getLoopbackAddress(), server.port);
                start(() -> copy(from, to));
                start(() -> copy(to, from));
            }
        });
        Locks locks = open(Locks.of(library.server(new Settings(server, null, null, tls, proxy.getLocalPort(), null))));
        Hold hold = acquire(locks, "door");
        Future<Hold> waiter = waiting(server, locks(library, server).lock("door"), "door", 1);
        CompletableFuture<?> lost = lost(hold);
        pause(100);
        server.ask("DEL", "door");
        soon(lost);
        soon(waiter).release();
        if (library == Library.LETTUCE) {
            RedisURI uri = RedisURI.builder().withHost("127.0.0.1").withPort(proxy.getLocalPort()).withSsl(true).build();
            Locks untrusted = open(Locks.of(Lettuce.server(uri)));
            fails(LockConnectionException.class, untrusted.lock("door")::acquire);
        }
    }

    private static void copy(Socket from, Socket to) throws IOException {
        byte[] bytes = new byte[1 << 14];
        OutputStream out = to.getOutputStream();
        for (int count; (count = from.getInputStream().read(bytes)) > 0;) {
            out.write(bytes, 0, count);
        }
        to.close();
    }

    @ParameterizedTest
    @EnumSource(names = {"LETTUCE", "JEDIS"})
    void masterOfSentinelIsFound(Library library) throws Exception {
        TestServer master = server();
        TestServer replica = server("--replicaof", "127.0.0.1 " + master.port);
        eventually("replicates", () -> replica.ask("INFO", "replication").contains("master_link_status:up"));
        TestServer sentinel = open(TestServer.sentinel(master));
        eventually("knows the replica", () -> sentinel.ask("SENTINEL", "REPLICAS", "locks").contains(Integer.toString(replica.port)));
        Locks locks = open(Locks.of(library.server(new Settings(sentinel, null, null, null, sentinel.port, "locks"))));
        Hold hold = acquire(locks.lock("door").lease(Duration.ofMinutes(1)));
        eventually("replicates the lock", () -> replica.ask("EXISTS", "door").equals("1"));
        master.stop();
        eventually("fails over", () -> replica.tryAsk("ROLE").contains("master"));
        acquire(locks, "shelf").release();
        hold.release();
    }

    @ParameterizedTest
    @EnumSource
    void clusterHasLocksOnAllNodes(Library library) throws Exception {
        List<TestServer> nodes = TestServer.cluster();
        nodes.forEach(this::open);
        Locks locks = locks(library, nodes.get(0));
        for (int n = 0; n < 20; n++) {
            String name = "door-" + n;
            Hold hold = acquire(locks, name);
            hold.fence();
            CompletableFuture<?> lost = lost(hold);
            TestServer node = nodes.get(nodes.get(0).ask("EXISTS", name).contains("MOVED") ? 1 : 0);
            Future<Hold> next = waiting(node, locks.lock(name), name, 1);
            if (n % 2 == 0) {
                hold.release();
            } else {
                node.ask("DEL", name);
                soon(lost);
            }
            next.get(2, TimeUnit.SECONDS).release();
        }
    }
}
