package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;
import redislock.Hold;
import redislock.Locks;

/** Virtual threads. A pinned one keeps the thread of the system that carries it while it waits. */
@EnabledForJreRange(min = JRE.JAVA_21)
class VirtualThreadsTest extends Tests {
    private static final int LOCKS = 100;
    private static final int WAITERS = 10_000;
    @TempDir
    Path folder;

    @Test
    void tenThousandWaitersPinNoThread() throws Exception {
        TestServer server = server();
        Locks holder = process(server);
        Locks locks = process(server);
        ExecutorService virtual = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        try (Recording recording = new Recording()) {
            recording.enable("jdk.VirtualThreadPinned").withThreshold(Duration.ZERO).withStackTrace();
            recording.start();
            List<Hold> holds = new ArrayList<>();
            for (int n = 0; n < LOCKS; n++) {
                holds.add(acquire(holder, "door-" + n));
            }
            AtomicInteger begun = new AtomicInteger();
            List<Future<?>> all = new ArrayList<>();
            for (int n = 0; n < WAITERS; n++) {
                String name = "door-" + n % LOCKS;
                all.add(virtual.submit(() -> {
                    begun.incrementAndGet();
                    locks.lock(name).acquire().close();
                    return null;
                }));
            }
            eventually("all wait", () -> begun.get() == WAITERS);
            for (int n = 0; n < LOCKS; n++) {
                String name = "door-" + n;
                eventually("the first waits", () -> server.info(name, "waiters").equals("1"));
                holds.get(n).release();
            }
            for (Future<?> one : all) {
                one.get(1, TimeUnit.MINUTES);
            }
            assertEquals(List.of(), pinned(recording));
            // In these versions a thread that sleeps in a synchronized block is pinned: the recording would have shown it.
            virtual.submit(() -> {
                synchronized (folder) {
                    Thread.sleep(20);
                }
                return null;
            }).get();
            assertEquals(1, pinned(recording).size());
        } finally {
            virtual.shutdownNow();
        }
    }

    private List<RecordedEvent> pinned(Recording recording) throws Exception {
        Path file = folder.resolve("recording.jfr");
        recording.dump(file);
        return RecordingFile.readAllEvents(file);
    }
}
