package redislock.tests

import java.util.concurrent.atomic.AtomicInteger
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.future.await
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import redislock.Hold
import redislock.LockSpec

/** The recipe for Kotlin: work that runs with a lock, which any end of its coroutine releases. */
internal class CoroutinesTest : Tests() {
    private suspend fun <T> LockSpec.withLock(work: suspend (Hold) -> T): T {
        val grant = acquireAsync()
        try {
            return work(grant.await())
        } finally {
            withContext(NonCancellable) {
                // A coroutine that is cancelled as the lock is granted gets no result of await.
                if (!grant.cancel(true) && !grant.isCompletedExceptionally) grant.join().releaseAsync().await()
            }
        }
    }

    @Test
    fun coroutinesExcludeEachOther() {
        val server = server()
        val door = process(server).lock("door")
        val inside = AtomicInteger()
        val most = runBlocking(Dispatchers.Default) {
            val each = List(50) {
                async {
                    door.withLock {
                        val now = inside.incrementAndGet()
                        delay(1)
                        inside.decrementAndGet()
                        now
                    }
                }
            }
            each.awaitAll().max()
        }
        assertEquals(1, most)
        nothingLeft(server, "door")
    }

    @Test
    fun cancelledCoroutinesLeaveNothing() {
        val server = server()
        val (holder, locks) = List(2) { process(server) }
        for (n in 0L..<100L) {
            val hold = holder.lock("door").acquire()
            runBlocking(Dispatchers.Default) {
                val waiting = launch { locks.lock("door").withLock { awaitCancellation() } }
                eventually("it waits") { server.info("door", "waiters") == "1" }
                if (n == 0L) {
                    waiting.cancelAndJoin()
                    eventually("it has withdrawn") { server.info("door", "waiters") == "0" }
                }
                endAtGrant(hold, n * 10) { waiting.cancel() }
                waiting.join()
            }
            took(0, 5000) { nothingLeft(server, "door") }
        }
    }
}
