package redislock.spring;

import java.io.IOException;
import java.net.Socket;
import java.util.List;
import java.util.UUID;
import javax.net.ssl.SSLSocketFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration;
import org.springframework.boot.data.redis.autoconfigure.DataRedisConnectionDetails;
import org.springframework.context.annotation.Bean;
import org.springframework.core.env.Environment;
import org.springframework.integration.support.locks.LockRegistry;
import redislock.Locks;
import redislock.Server;

/** Makes {@link Locks} of spring.data.redis, and a registry with the key redis-lock.registry-key and the lease redis-lock.lease. */
@AutoConfiguration(after = DataRedisAutoConfiguration.class)
@ConditionalOnBean(DataRedisConnectionDetails.class)
public class RedisLockClientAutoConfiguration {
    /** Returns the locks of the server. */
    @Bean
    @ConditionalOnMissingBean
    public Locks redisLocks(DataRedisConnectionDetails details) {
        return Locks.of(server(details));
    }

    /** Returns the registry. */
    @Bean
    @ConditionalOnMissingBean(LockRegistry.class)
    public RedisLockClientRegistry lockRegistry(Locks locks, Environment environment) {
        return new RedisLockClientRegistry(locks, environment.getProperty("redis-lock.registry-key", "spring-integration"),
            DurationStyle.detectAndParse(environment.getProperty("redis-lock.lease", "60s")));
    }

    private static Server server(DataRedisConnectionDetails details) {
        SSLSocketFactory tls = details.getSslBundle() == null ? null : details.getSslBundle().createSslContext().getSocketFactory();
        DataRedisConnectionDetails.Sentinel sentinel = details.getSentinel();
        DataRedisConnectionDetails.Cluster cluster = details.getCluster();
        DataRedisConnectionDetails.Standalone one = details.getStandalone();
        List<String> nodes = cluster != null ? addresses(cluster.getNodes()) : List.of(one == null ? "" : one.getHost() + ":" + one.getPort());
        Server.Connector connector = address -> connect(address, nodes, tls);
        if (sentinel != null) {
            connector = Server.master(sentinel.getMaster(), addresses(sentinel.getNodes()),
                () -> new Server.Credentials(sentinel.getUsername(), sentinel.getPassword()), connector, connector);
        }
        int database = cluster != null ? 0 : sentinel != null ? sentinel.getDatabase() : one.getDatabase();
        // The context has its own connection: its settings may be those of no other.
        return new Server("spring " + UUID.randomUUID(), connector,
            () -> new Server.Credentials(details.getUsername(), details.getPassword()), database);
    }

    private static List<String> addresses(List<DataRedisConnectionDetails.Node> nodes) {
        return nodes.stream().map(node -> node.host() + ":" + node.port()).toList();
    }

    /** Connects to the first node that can be reached, unless a redirection has named one. */
    private static Socket connect(String address, List<String> nodes, SSLSocketFactory tls) throws IOException {
        IOException failure = null;
        for (String node : nodes) {
            try {
                return Server.open(Server.resolve(address, node), tls, true);
            } catch (IOException e) {
                failure = e;
            }
        }
        throw failure;
    }
}
