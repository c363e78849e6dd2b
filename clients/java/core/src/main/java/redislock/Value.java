package redislock;

import java.util.List;

/**
 * A reply or a message in RESP3. Its kind is the first byte on the wire; '_' stands for every null, '$' for every text, and a map is a list
 * of keys and values in turn.
 */
record Value(char kind, long number, String text, List<Value> items) {
    static final Value NULL = new Value('_', 0, "", List.of());

    static Value of(char kind, String text) {
        return new Value(kind, 0, text, List.of());
    }

    static Value of(long number) {
        return new Value(':', number, "", List.of());
    }

    boolean isNull() {
        return kind == '_';
    }

    boolean isError() {
        return kind == '-';
    }

    /** Returns a field of a map, null if there is none. */
    Value field(String name) {
        for (int n = 0; n + 1 < items.size(); n += 2) {
            if (items.get(n).text.equals(name)) {
                return items.get(n + 1);
            }
        }
        return NULL;
    }
}
