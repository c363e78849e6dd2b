package redislock.jedis;

import java.util.List;
import java.util.Set;
import redis.clients.jedis.DefaultJedisSocketFactory;
import redis.clients.jedis.DefaultRedisCredentialsProvider;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.RedisCredentials;
import redislock.Server;

/** Makes a server for {@link redislock.Locks#of} of the settings of a Jedis client. */
public final class Jedis {
    private Jedis() { }

    /** Returns the server of an address, or of a node of a cluster. */
    public static Server server(HostAndPort address, JedisClientConfig config) {
        return server(address.toString(), config, connector(address.toString(), config));
    }

    /** Returns the master that sentinels know by a name. */
    public static Server server(String master, JedisClientConfig config, Set<HostAndPort> sentinels, JedisClientConfig sentinelConfig) {
        List<String> addresses = sentinels.stream().map(HostAndPort::toString).toList();
        return server(master + sentinels, config, Server.master(master, addresses, () -> credentials(sentinelConfig),
            connector("", sentinelConfig), connector("", config)));
    }

    @SuppressWarnings("deprecation") // The factory is the older way to configure TLS.
    private static Server server(String name, JedisClientConfig config, Server.Connector connector) {
        Object user = config.getCredentialsProvider() instanceof DefaultRedisCredentialsProvider ? config.getUser() + " " + config.getPassword()
            : System.identityHashCode(config.getCredentialsProvider());
        String id = "jedis " + name + " " + config.getDatabase() + " " + config.isSsl() + " " + System.identityHashCode(config.getSslOptions())
            + " " + System.identityHashCode(config.getSslSocketFactory()) + " " + user;
        return new Server(id, connector, () -> credentials(config), config.getDatabase());
    }

    private static Server.Connector connector(String own, JedisClientConfig config) {
        return to -> new DefaultJedisSocketFactory(HostAndPort.from(Server.resolve(to, own)), config).createSocket();
    }

    private static Server.Credentials credentials(JedisClientConfig config) {
        RedisCredentials found = config.getCredentialsProvider() == null ? null : config.getCredentialsProvider().get();
        return found == null || found.getPassword() == null ? null : new Server.Credentials(found.getUser(), new String(found.getPassword()));
    }
}
