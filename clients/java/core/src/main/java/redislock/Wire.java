package redislock;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.util.ArrayList;
import java.util.List;

/** Commands as a client sends them, and values in RESP3. */
final class Wire {
    /** The longest text and the longest list that are read, and how deep lists may be nested. */
    private static final int MAX_TEXT = 64 << 20, MAX_ITEMS = 1 << 20, MAX_DEPTH = 8, MAX_LINE = 1 << 16;
    private static final byte[] END = {'\r', '\n'};

    private final BufferedInputStream in;

    Wire(InputStream in) {
        this.in = new BufferedInputStream(in, 16 << 10);
    }

    static void add(ByteArrayOutputStream out, List<String> words) {
        out.writeBytes(("*" + words.size() + "\r\n").getBytes(UTF_8));
        for (String word : words) {
            byte[] text = word.getBytes(UTF_8);
            out.writeBytes(("$" + text.length + "\r\n").getBytes(UTF_8));
            out.writeBytes(text);
            out.writeBytes(END);
        }
    }

    /**
     * Reads a value. The exception is an EOFException at the end, and a ProtocolException if the bytes
     * are no RESP3. After a SocketTimeoutException the same value can be read again.
     */
    Value read() throws IOException {
        in.mark(Integer.MAX_VALUE);
        try {
            return read(MAX_DEPTH);
        } catch (SocketTimeoutException e) {
            in.reset();
            throw e;
        }
    }

    /** Returns whether more has come. */
    boolean hasMore() throws IOException {
        return in.available() > 0;
    }

    private Value read(int depth) throws IOException {
        String line = line();
        if (line.isEmpty() || depth == 0) {
            throw malformed(line);
        }
        char kind = line.charAt(0);
        String rest = line.substring(1);
        return switch (kind) {
            case '+', '-', ',', '(' -> Value.of(kind, rest);
            case '_' -> Value.NULL;
            case '#' -> switch (rest) {
                case "t", "f" -> new Value('#', rest.equals("t") ? 1 : 0, "", List.of());
                default -> throw malformed(line);
            };
            case ':' -> Value.of(number(line));
            case '$', '!', '=' -> text(kind, number(line));
            case '*', '>', '~' -> list(kind, number(line), depth - 1);
            case '%' -> list(kind, 2 * Math.min(number(line), MAX_ITEMS), depth - 1);
            case '|' -> {
                // Attributes precede a value, and say nothing here.
                list(kind, 2 * Math.min(number(line), MAX_ITEMS), depth - 1);
                yield read(depth - 1);
            }
            default -> throw malformed(line);
        };
    }

    private Value text(char kind, long length) throws IOException {
        if (length == -1 && kind == '$') {
            return Value.NULL;
        }
        if (length < 0 || length > MAX_TEXT) {
            throw malformed("a text of " + length + " bytes");
        }
        byte[] text = in.readNBytes((int) length + 2);
        if (text.length < length + 2) {
            throw ended();
        }
        if (text[(int) length] != '\r' || text[(int) length + 1] != '\n') {
            throw malformed("no end of a text");
        }
        int skipped = kind == '=' && length >= 4 ? 4 : 0;
        return Value.of(kind == '!' ? '-' : '$', new String(text, skipped, (int) length - skipped, UTF_8));
    }

    private Value list(char kind, long length, int depth) throws IOException {
        if (length == -1 && kind == '*') {
            return Value.NULL;
        }
        if (length < 0 || length > MAX_ITEMS) {
            throw malformed("a list of " + length + " items");
        }
        // Memory for what a list claims to have is not taken before it comes.
        List<Value> items = new ArrayList<>((int) Math.min(length, 64));
        for (long n = 0; n < length; n++) {
            items.add(read(depth));
        }
        return new Value(kind, 0, "", items);
    }

    private String line() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int last = 0;;) {
            int next = in.read();
            if (next < 0) {
                throw ended();
            }
            if (next == '\n' && last == '\r') {
                line.setLength(line.length() - 1);
                return line.toString();
            }
            if (next == '\n' || line.length() > MAX_LINE) {
                throw malformed(line.toString());
            }
            line.append((char) next);
            last = next;
        }
    }

    private static EOFException ended() {
        return new EOFException("the server has closed the connection");
    }

    private static long number(String line) throws IOException {
        try {
            return Long.parseLong(line.substring(1));
        } catch (NumberFormatException e) {
            throw malformed(line);
        }
    }

    private static IOException malformed(String text) {
        return new ProtocolException("malformed reply: " + text.substring(0, Math.min(text.length(), 40)));
    }
}
