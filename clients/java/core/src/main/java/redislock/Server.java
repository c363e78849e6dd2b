package redislock;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.URLDecoder;
import java.util.List;
import java.util.concurrent.Callable;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * Says how to open one connection. The classes Lettuce and Jedis make it from the settings of those clients.
 *
 * @param id the same for all that may share a connection
 * @param connector opens a connection
 * @param credentials returns the user and the password for each connection, and may be null
 * @param database the number of the database
 */
public record Server(String id, Connector connector, Callable<Credentials> credentials, int database) {
    /** Opens a connection. */
    @FunctionalInterface
    public interface Connector {
        /**
         * Opens a connection.
         *
         * @param address host:port of a node of a cluster, :port for another one on the same host, or empty for the server itself
         */
        Socket connect(String address) throws IOException;
    }

    /**
     * A user and a password.
     *
     * @param user null or empty for the default user
     * @param password null or empty if none is needed
     */
    public record Credentials(String user, String password) {
        /** Returns the words of a command that choose the user. */
        List<String> words() {
            boolean isNeeded = password != null && !password.isEmpty();
            return isNeeded ? List.of("AUTH", user == null || user.isEmpty() ? "default" : user, password) : List.of();
        }
    }

    /** Returns the server of an address: redis://user:password@host:6379/0, or rediss:// with TLS. */
    public static Server of(String address) {
        URI uri = URI.create(address);
        boolean isSecure = "rediss".equals(uri.getScheme());
        if (!isSecure && !"redis".equals(uri.getScheme()) || uri.getHost() == null) {
            throw new IllegalArgumentException("an address such as redis://localhost:6379/0 is needed");
        }
        String path = uri.getPath().replace("/", "");
        String host = uri.getHost().replaceAll("[\\[\\]]", "") + ":" + (uri.getPort() < 0 ? 6379 : uri.getPort());
        String[] parts = uri.getRawUserInfo() == null ? null : uri.getRawUserInfo().split(":", 2);
        Credentials credentials = parts == null ? null : new Credentials(decode(parts[0]), parts.length < 2 ? "" : decode(parts[1]));
        return new Server(address, to -> open(resolve(to, host), isSecure ? (SSLSocketFactory) SSLSocketFactory.getDefault() : null, true),
            () -> credentials, path.isEmpty() ? 0 : Integer.parseInt(path));
    }

    private static String decode(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), UTF_8);
    }

    /** Returns the address that a connector is asked for as host:port, where the server itself has another one. */
    public static String resolve(String address, String own) {
        return address.isEmpty() ? own : address.startsWith(":") ? own.substring(0, own.lastIndexOf(':')) + address : address;
    }

    /**
     * Opens a connection.
     *
     * @param address host:port
     * @param tls null without TLS
     * @param checksName whether the certificate must be one for the host
     */
    public static Socket open(String address, SSLSocketFactory tls, boolean checksName) throws IOException {
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, colon);
        int port = Integer.parseInt(address.substring(colon + 1));
        int timeout = (int) (Words.SILENCE / Words.MS);
        Socket socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.connect(new InetSocketAddress(host, port), timeout);
            if (tls == null) {
                return socket;
            }
            socket.setSoTimeout(timeout);
            SSLSocket secure = (SSLSocket) tls.createSocket(socket, host, port, true);
            SSLParameters parameters = secure.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm(checksName ? "HTTPS" : null);
            secure.setSSLParameters(parameters);
            secure.startHandshake();
            return secure;
        } catch (IOException e) {
            socket.close();
            throw e;
        }
    }

    /**
     * Returns a connector that asks sentinels for the address of a master each time.
     *
     * @param name the name of the master
     * @param sentinels their addresses, host:port
     * @param credentials returns those of the sentinels, or null
     * @param toSentinel opens a connection to a sentinel
     * @param toServer opens a connection to the master
     */
    public static Connector master(String name, List<String> sentinels, Callable<Credentials> credentials, Connector toSentinel,
            Connector toServer) {
        return ignored -> {
            IOException failure = new IOException("no sentinel knows the master " + name);
            for (String sentinel : sentinels) {
                try (Socket socket = toSentinel.connect(sentinel)) {
                    return toServer.connect(ask(socket, name, credentials.call()));
                } catch (Exception e) {
                    failure.addSuppressed(e);
                }
            }
            throw failure;
        };
    }

    private static String ask(Socket socket, String name, Credentials credentials) throws IOException {
        socket.setSoTimeout((int) (Words.SECOND / Words.MS));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        List<String> user = credentials == null ? List.of() : credentials.words();
        if (!user.isEmpty()) {
            Wire.add(out, user);
        }
        Wire.add(out, List.of("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name));
        out.writeTo(socket.getOutputStream());
        Wire in = new Wire(socket.getInputStream());
        Value reply = in.read();
        if (!user.isEmpty() && !reply.isError()) {
            reply = in.read();
        }
        if (reply.items().size() < 2) {
            throw new IOException(reply.isError() ? reply.text() : "a sentinel does not know the master " + name);
        }
        return reply.items().get(0).text() + ":" + reply.items().get(1).text();
    }
}
