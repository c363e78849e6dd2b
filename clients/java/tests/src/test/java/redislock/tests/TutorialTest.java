package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;
import redislock.Hold;
import redislock.Locks;

/** The program of docs/guides/tutorial.md. */
class TutorialTest extends Tests {
    private long last;

    private void write(long token) {
        assertTrue(token > last);
        last = token;
    }

    @Test
    void writesOfTutorialCarryRisingTokens() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        for (int n = 0; n < 2; n++) {
            try (Hold hold = locks.lock("door").waitAtMost(Duration.ofSeconds(20)).acquire()) {
                write(hold.fence());
                assertEquals(hold.token(), server.info("door", "owner"));
            }
        }
        nothingLeft(server, "door");
    }
}
