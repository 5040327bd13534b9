import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;

/**
 * What the whole run shares, all of it in one JVM: when streams start, the tick that wakes their
 * readers, the counts of events, and the lines that tell the benchmark about results.
 */
final class Run {
    static final long NOT_YET = Long.MIN_VALUE;
    static final LongAdder EVENTS = new LongAdder();
    static final LongAdder LATE = new LongAdder();

    private static CountDownLatch readers;
    private static volatile long startMillis = NOT_YET;
    private static volatile CompletableFuture<Void> tick = new CompletableFuture<>();

    private Run() {}

    static void prepare(int queries, double tickMillis) {
        readers = new CountDownLatch(queries);
        long periodNanos = (long) (tickMillis * 1e6);
        Thread ticker = new Thread(() -> keepTicking(periodNanos), "ticker");
        ticker.setDaemon(true);
        ticker.setPriority(Thread.MAX_PRIORITY);
        ticker.start();
    }

    static void readerIsReady() {
        readers.countDown();
    }

    /** Waits for all readers, and lets their streams start shortly after. */
    static long start() throws InterruptedException {
        readers.await();
        startMillis = System.currentTimeMillis() + 200;
        return startMillis;
    }

    static long startMillis() {
        return startMillis;
    }

    /** Returns what completes at the next tick: one future for all readers. */
    static CompletableFuture<Void> nextTick() {
        return tick;
    }

    /** Writes one JSON object to a line, whichever thread has one to write. */
    static void tell(String json) {
        synchronized (System.out) {
            System.out.println(json);
            System.out.flush();
        }
    }

    private static void keepTicking(long periodNanos) {
        long due = System.nanoTime();
        while (true) {
            due = Math.max(due + periodNanos, System.nanoTime());
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
            }
            CompletableFuture<Void> over = tick;
            tick = new CompletableFuture<>();
            over.complete(null);
        }
    }
}
