package redislock.lettuce;

import io.lettuce.core.RedisCredentials;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslVerifyMode;
import io.lettuce.core.StaticCredentialsProvider;
import java.security.NoSuchAlgorithmException;
import java.util.List;
import javax.net.ssl.SSLContext;
import redislock.Server;

/** Makes a server for {@link redislock.Locks#of} of the address of a Lettuce client. */
public final class Lettuce {
    private Lettuce() { }

    /** Returns the server of an address, also one with sentinels, or of a node of a cluster. TLS is that of the JDK. */
    public static Server server(RedisURI uri) {
        try {
            return server(uri, SSLContext.getDefault());
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Does as {@link #server(RedisURI)} with a context for TLS, which says which certificates are trusted. */
    public static Server server(RedisURI uri, SSLContext tls) {
        if (uri.getSocket() != null || uri.isStartTls() || uri.isSsl() && uri.getVerifyMode() == SslVerifyMode.NONE) {
            throw new IllegalArgumentException("Unix sockets, StartTLS and unverified certificates are not supported");
        }
        String own = uri.getHost() + ":" + uri.getPort();
        Server.Connector connector = connector(uri, tls, own);
        if (!uri.getSentinels().isEmpty()) {
            List<String> sentinels = uri.getSentinels().stream().map(one -> one.getHost() + ":" + one.getPort()).toList();
            RedisURI first = uri.getSentinels().get(0);
            connector = Server.master(uri.getSentinelMasterId(), sentinels, () -> credentials(first), connector(first, tls, own), connector);
        }
        boolean isStatic = uri.getCredentialsProvider() instanceof StaticCredentialsProvider;
        String id = "lettuce " + uri.toURI() + " " + System.identityHashCode(isStatic ? null : uri.getCredentialsProvider()) + " "
            + System.identityHashCode(tls);
        return new Server(id, connector, () -> credentials(uri), uri.getDatabase());
    }

    private static Server.Connector connector(RedisURI uri, SSLContext tls, String own) {
        return address -> Server.open(Server.resolve(address, own), uri.isSsl() ? tls.getSocketFactory() : null,
            uri.getVerifyMode() == SslVerifyMode.FULL);
    }

    private static Server.Credentials credentials(RedisURI uri) {
        RedisCredentials found = uri.getCredentialsProvider().resolveCredentials().block();
        return found == null || !found.hasPassword() ? null : new Server.Credentials(found.getUsername(), new String(found.getPassword()));
    }
}
