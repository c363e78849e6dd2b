package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;
import redislock.Hold;
import redislock.Locks;

/** A call for each command. The site shows them on the page of the command: from such a comment to the next empty line. */
class CommandsTest extends Tests {
    @Test
    void commandsHaveCalls() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        // LOCK.ACQUIRE
        Hold hold = locks.lock("door").lease(Duration.ofSeconds(30)).waitAtMost(Duration.ofSeconds(20)).acquire();

        // LOCK.FENCE
        long number = hold.fence();

        // LOCK.EXTEND
        hold.extend(Duration.ofMinutes(1));

        // LOCK.RELEASE
        hold.release();

        // LOCK.REENTER
        Hold outer = locks.lock("cellar").reentrant("job-17").acquire();
        Hold inner = locks.lock("cellar").reentrant("job-17").acquire();

        // LOCK.SHARE
        Hold reader = locks.lock("page").shared().acquire();
        Hold permit = locks.lock("printers").permits(3).acquire();

        assertTrue(number > 0);
        for (Hold each : new Hold[] {inner, outer, reader, permit}) {
            each.release();
        }
        for (String name : new String[] {"door", "cellar", "page", "printers"}) {
            nothingLeft(server, name);
        }
    }
}
