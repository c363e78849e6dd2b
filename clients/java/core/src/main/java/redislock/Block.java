package redislock;

import java.util.concurrent.locks.ReentrantLock;

/** The end of work under a lock: it releases the lock. Until then it interrupts the thread when the lock is lost, if that is wanted. */
final class Block implements AutoCloseable {
    private final Hold hold;
    private final ReentrantLock lock = new ReentrantLock();
    private Thread thread = Thread.currentThread();
    boolean hasInterrupted;

    Block(Hold hold, boolean interrupts) {
        this.hold = hold;
        if (interrupts) {
            hold.onLost(() -> end(true));
        }
    }

    private void end(boolean interrupts) {
        lock.lock();
        try {
            if (interrupts && thread != null) {
                hasInterrupted = true;
                thread.interrupt();
            }
            thread = null;
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() {
        end(false);
        if (hasInterrupted) {
            // The work has not seen it, or has and is over.
            Thread.interrupted();
        }
        hold.release();
    }
}
