package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import redislock.Hold;
import redislock.Locks;
import redislock.Server;

class ClusterTest extends Tests {
    private List<TestServer> cluster() {
        List<TestServer> nodes = TestServer.cluster();
        nodes.forEach(this::open);
        return nodes;
    }

    @Test
    void clusterIsNoticed() throws Exception {
        Locks locks = process(cluster().get(0));
        fails(IllegalArgumentException.class, acquire(locks, "a}b")::fence);
        Hold all = acquire(locks.several("a", "b", "c", "d", "e").session());
        assertTrue(all.isHeld());
        all.release();
    }

    @Test
    void holdsAndWaitsFollowTheirSlot() throws Exception {
        List<TestServer> nodes = cluster();
        String slot = nodes.get(0).ask("CLUSTER", "KEYSLOT", "door");
        TestServer from = nodes.get(Integer.parseInt(slot) > 8191 ? 1 : 0);
        TestServer to = nodes.get(Integer.parseInt(slot) > 8191 ? 0 : 1);
        Hold hold = acquire(process(nodes.get(0)).lock("door").lease(Duration.ofSeconds(3)).renew());
        CompletableFuture<?> lost = lost(hold);
        Future<Hold> waiter = waiting(from, process(nodes.get(1)).lock("door"), "door", 1);
        String fromId = from.ask("CLUSTER", "MYID");
        String toId = to.ask("CLUSTER", "MYID");
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", fromId);
        from.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", toId);
        from.ask("MIGRATE", "127.0.0.1", Integer.toString(to.port), "door", "0", "5000");
        to.ask("CLUSTER", "SETSLOT", slot, "NODE", toId);
        from.ask("CLUSTER", "SETSLOT", slot, "NODE", toId);
        eventually("it waits there", () -> to.info("door", "waiters").equals("1"));
        pause(3500);
        assertFalse(lost.isDone());
        hold.release();
        waiter.get(2, TimeUnit.SECONDS).release();
    }

    @Test
    void userWithoutChannelPolls() throws Exception {
        TestServer server = server();
        server.ask("ACL", "SETUSER", "worker", "on", ">secret", "resetchannels", "~*", "+lock.acquire", "+lock.release");
        Locks locks = process(server, new Server.Credentials("worker", "secret"));
        Hold hold = acquire(locks.lock("door").lease(Duration.ofSeconds(1)));
        Future<?> next = start(() -> locks.lock("door").lease(Duration.ofSeconds(5)).acquire().release());
        pause(50);
        CompletableFuture<?> lost = lost(hold);
        server.ask("DEL", "door");
        soon(next);
        lost.get(2, TimeUnit.SECONDS);
    }
}
