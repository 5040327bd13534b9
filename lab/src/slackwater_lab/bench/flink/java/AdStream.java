import java.io.Serializable;

/**
 * The events of one query, by arithmetic: record n is the one that Slackwater's generator makes
 * (slackwater.spark.sources.ysb), bit for bit, and arrives when that one does.
 */
final class AdStream implements Serializable {
    private static final long P1 = 0x9E3779B185EBCA87L;
    private static final long P2 = 0xC2B2AE3D27D4EB4FL;
    private static final long P3 = 0x165667B19E3779F9L;
    private static final long P4 = 0x85EBCA77C2B2AE63L;
    private static final long P5 = 0x27D4EB2F165667C5L;
    private static final long SPARK_SEED = 42;
    private static final long LOWER_HALF = 0xFFFFFFFFL;
    private static final int KINDS = 3;
    private static final int ADS = 1_000;

    private final long salt;
    private final long startAfterMicros;
    private final double gapMicros;
    private final Delay delay;

    AdStream(long salt, long startAfterMillis, double gapMicros, Delay delay) {
        this.salt = salt;
        this.startAfterMicros = startAfterMillis * 1_000;
        this.gapMicros = gapMicros;
        this.delay = delay;
    }

    /** Tells how many microseconds after the run's start record n arrives. */
    long arrivalMicros(long n) {
        return startAfterMicros + (long) (n * gapMicros);
    }

    /** Makes record n, and returns its event time in milliseconds. */
    long fill(AdEvent event, long n, long startMillis) {
        long h = hash(salt ^ n);
        long scaled = (h & LOWER_HALF) * KINDS;
        event.kind = (int) (scaled >>> 32);
        event.ad = (int) (((scaled & LOWER_HALF) * ADS) >>> 32);
        event.bits = h;
        double u = (h >>> 32) * 0x1p-32;
        long travelled = (long) (delay.millis(u) * 1_000.0);
        return Math.floorDiv(startMillis * 1_000 + arrivalMicros(n) - travelled, 1_000L);
    }

    /** Hashes as Spark's xxhash64 hashes a bigint. */
    static long hash(long value) {
        long x = Long.rotateLeft(value * P2, 31) * P1;
        x ^= SPARK_SEED + P5 + 8;
        x = Long.rotateLeft(x, 27) * P1 + P4;
        x = (x ^ x >>> 33) * P2;
        x = (x ^ x >>> 29) * P3;
        return x ^ x >>> 32;
    }
}
