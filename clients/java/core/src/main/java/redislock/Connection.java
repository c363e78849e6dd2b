package redislock;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A connection and its thread, which opens it and reads. Callers write themselves; one that finds another thread writing leaves it to that one.
 *
 * <p>While no messages are expected, the thread rests, and a caller that waits reads: to wake a thread for that takes as long as all the rest
 * of a command.
 *
 * <pre>
 *   the thread reads   it has read the last reply that is due, and no key is watched         it rests
 *   it rests           a caller has sent a command, and no other one reads                   the caller reads until its reply is there
 *   it rests           the caller has its reply                                              the next one that waits reads
 *   it rests           a caller has none in 5 ms, or does not read: virtual threads, timers  the thread reads, for 100 ms at least
 *   it rests           nothing was sent in 5 ms, or a key is watched                         the thread reads
 * </pre>
 */
final class Connection implements Engine.Port, Runnable {
    /** A server that has so many bytes without a reply may not read: a timer must not wait for it. */
    private static final int MAX_UNANSWERED = 16 << 10;
    /** In milliseconds. */
    private static final int REST = 5;
    /** How long the thread does not rest after it was woken: to change turns costs more than it saves. */
    private static final long NO_REST = 100 * Words.MS;

    private final Loop loop;
    private final Link link;
    private final String address;
    private final long delay;
    private volatile Socket socket;
    private volatile boolean isClosed;
    private volatile int unanswered;
    private boolean isWriting;
    private ByteArrayOutputStream out = new ByteArrayOutputStream();
    private ByteArrayOutputStream batch = new ByteArrayOutputStream();
    private Wire in;
    /** The thread that reads has it. */
    private final ReentrantLock reading = new ReentrantLock();
    /** The callers that may read next. */
    private final Queue<Thread> waiting = new ConcurrentLinkedQueue<>();
    private volatile Thread thread;
    private volatile boolean isResting;
    private long wokenAt;
    private int sent;

    Connection(Loop loop, Link link, String address, long delay) {
        this.loop = loop;
        this.link = link;
        this.address = address;
        this.delay = delay;
    }

    @Override
    public void send(List<String> words) {
        Wire.add(out, words);
        sent++;
        loop.sending.add(this);
    }

    /** Closing a connection with TLS may wait for what is being written, so that another thread does it. */
    @Override
    public void close() {
        isClosed = true;
        wake(true);
        if (socket != null) {
            Loop.start(this::closeSocket);
        }
    }

    private void closeSocket() {
        try {
            socket.close();
        } catch (IOException e) {
            loop.engine.log(Level.DEBUG, "a connection was not closed: " + e);
        }
    }

    private void lost(Throwable cause) {
        loop.run(() -> link.close(cause));
    }

    @Override
    public void run() {
        thread = Thread.currentThread();
        try {
            TimeUnit.NANOSECONDS.sleep(delay);
            if (isClosed) {
                return;
            }
            socket = loop.server.connector().connect(address);
            socket.setTcpNoDelay(true);
            Server.Credentials user = loop.server.credentials() == null ? null : loop.server.credentials().call();
            in = new Wire(socket.getInputStream());
            loop.run(() -> link.opened(user));
            for (reading.lock(); !isClosed; rest()) {
                receive(0);
            }
        } catch (Throwable e) {
            // Also an error, as of a connector whose class is missing: nobody reads any more.
            lost(e);
        } finally {
            if (socket != null) {
                closeSocket();
            }
        }
    }

    // Reading.

    /** Reads what has come, and handles it together. The limit is in milliseconds, 0: none. */
    private void receive(int limit) throws IOException {
        List<Value> values = new ArrayList<>();
        socket.setSoTimeout(limit);
        try {
            do {
                values.add(in.read());
            } while (in.hasMore());
        } catch (SocketTimeoutException e) {
            // The rest of a value comes later.
        } finally {
            unanswered = 0;
            loop.run(() -> {
                values.forEach(link::received);
                // Callers send no more before the lock is free. Interrupts and limits of reads are known for this class of sockets alone.
                if (thread == Thread.currentThread() && link.isQuiet() && loop.now() - wokenAt > NO_REST && socket.getClass() == Socket.class) {
                    isResting = true;
                    reading.unlock();
                }
            });
        }
    }

    /** Leaves the reading to callers as long as they send commands. */
    private void rest() {
        for (int[] last = {-1}; isResting;) {
            LockSupport.parkNanos(REST * Words.MS);
            loop.locked(() -> {
                isResting = isResting && sent != last[0] && loop.engine.isIdle();
                last[0] = sent;
            });
        }
        if (!reading.isHeldByCurrentThread()) {
            reading.lock();
        }
    }

    /** Reads for a caller that has sent something. */
    void read(CompletableFuture<?> awaited) {
        Thread caller = Thread.currentThread();
        // An interrupt of a virtual thread that reads would close the connection.
        if (awaited == null || caller.getThreadGroup().getName().equals("VirtualThreads")) {
            wake(true);
            return;
        }
        boolean isWaiting = false;
        for (long until = loop.now() + REST * Words.MS; isResting && !awaited.isDone() && loop.now() < until && !caller.isInterrupted();) {
            if (reading.tryLock()) {
                try {
                    receive(REST);
                } catch (Throwable e) {
                    lost(e);
                } finally {
                    reading.unlock();
                }
            } else if (isWaiting) {
                LockSupport.parkNanos(until - loop.now());
            } else {
                isWaiting = true;
                waiting.add(caller);
                awaited.whenComplete((result, error) -> LockSupport.unpark(caller));
            }
        }
        if (isWaiting) {
            waiting.remove(caller);
        }
        if (!awaited.isDone()) {
            wake(false);
        } else if (isResting && !reading.isLocked()) {
            LockSupport.unpark(waiting.peek());
        }
    }

    /** Ends the rest of the thread, or only if there is something to read. */
    private void wake(boolean isCertain) {
        if (isResting) {
            loop.locked(() -> {
                if (isResting && (isCertain || !link.isQuiet())) {
                    isResting = false;
                    wokenAt = loop.now();
                    LockSupport.unpark(thread);
                }
            });
        }
    }

    // Writing.

    /** Takes over the writing, under the lock. */
    boolean claim() {
        if (isWriting || isClosed || out.size() == 0) {
            return false;
        }
        isWriting = true;
        ByteArrayOutputStream next = out;
        out = batch;
        batch = next;
        return true;
    }

    void write(boolean mayWait) {
        if (!mayWait && unanswered >= MAX_UNANSWERED) {
            Loop.start(() -> write(true));
            return;
        }
        for (boolean[] isMore = {true}; isMore[0];) {
            try {
                unanswered += batch.size();
                batch.writeTo(socket.getOutputStream());
            } catch (IOException e) {
                lost(e);
            }
            batch.reset();
            loop.locked(() -> {
                isWriting = false;
                isMore[0] = claim();
            });
        }
    }
}
