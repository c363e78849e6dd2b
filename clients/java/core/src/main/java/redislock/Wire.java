package redislock;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.ProtocolException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The bytes of one direction of a connection: commands as a client sends them, or values in RESP3. */
final class Wire {
    /** The longest text and the longest list that are read, and how deep lists may be nested. */
    private static final int MAX_TEXT = 64 << 20, MAX_ITEMS = 1 << 20, MAX_DEPTH = 8, MAX_LINE = 1 << 16;

    private final InputStream in;
    private byte[] bytes = new byte[16 << 10];
    private int start, end;

    /** Bytes to be sent have no input. */
    Wire(InputStream in) {
        this.in = in;
    }

    int size() {
        return end - start;
    }

    void clear() {
        start = end = 0;
    }

    byte[] array() {
        return bytes;
    }

    void add(List<String> words) {
        header('*', words.size());
        for (String word : words) {
            byte[] text = word.getBytes(UTF_8);
            header('$', text.length);
            add(text);
            add(new byte[] {'\r', '\n'});
        }
    }

    private void header(char kind, int number) {
        add((kind + Integer.toString(number) + "\r\n").getBytes(UTF_8));
    }

    private void add(byte[] more) {
        if (bytes.length - end < more.length) {
            bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, end + more.length));
        }
        System.arraycopy(more, 0, bytes, end, more.length);
        end += more.length;
    }

    /** Reads a value. The exception is an EOFException at the end, and a ProtocolException if the bytes are no RESP3. */
    Value read() throws IOException {
        return read(MAX_DEPTH);
    }

    private Value read(int depth) throws IOException {
        String line = line();
        if (line.isEmpty() || depth == 0) {
            throw malformed(line);
        }
        char kind = line.charAt(0);
        String rest = line.substring(1);
        switch (kind) {
            case '+', '-', ',', '(' -> {
                return Value.of(kind, rest);
            }
            case '_' -> {
                return Value.NULL;
            }
            case '#' -> {
                if (rest.equals("t") || rest.equals("f")) {
                    return new Value('#', rest.equals("t") ? 1 : 0, "", List.of());
                }
            }
            default -> { }
        }
        long number = number(rest, line);
        if (number == -1 && (kind == '$' || kind == '*')) {
            return Value.NULL;
        }
        return switch (kind) {
            case ':' -> Value.of(number);
            case '$', '!', '=' -> text(kind, number);
            case '*', '>', '~' -> list(kind, number, depth - 1);
            case '%' -> list(kind, 2 * Math.min(number, MAX_ITEMS), depth - 1);
            case '|' -> {
                // Attributes precede a value, and say nothing here.
                list(kind, 2 * Math.min(number, MAX_ITEMS), depth - 1);
                yield read(depth - 1);
            }
            default -> throw malformed(line);
        };
    }

    private Value text(char kind, long length) throws IOException {
        if (length < 0 || length > MAX_TEXT) {
            throw malformed("a text of " + length + " bytes");
        }
        byte[] text = new byte[(int) length + 2];
        for (int n = 0; n < text.length;) {
            fill();
            int count = Math.min(text.length - n, size());
            System.arraycopy(bytes, start, text, n, count);
            start += count;
            n += count;
        }
        if (text[text.length - 2] != '\r' || text[text.length - 1] != '\n') {
            throw malformed("no end of a text");
        }
        int skipped = kind == '=' && length >= 4 ? 4 : 0;
        return Value.of(kind == '!' ? '-' : '$', new String(text, skipped, (int) length - skipped, UTF_8));
    }

    private Value list(char kind, long length, int depth) throws IOException {
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
            fill();
            int next = bytes[start++] & 0xff;
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

    /** Waits until there is at least one byte. */
    private void fill() throws IOException {
        if (start == end) {
            start = 0;
            end = Math.max(0, in.read(bytes, 0, bytes.length));
            if (end == 0) {
                throw new EOFException("the server has closed the connection");
            }
        }
    }

    private static long number(String text, String line) throws IOException {
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException e) {
            throw malformed(line);
        }
    }

    private static IOException malformed(String text) {
        return new ProtocolException("malformed reply: " + text.substring(0, Math.min(text.length(), 40)));
    }
}
