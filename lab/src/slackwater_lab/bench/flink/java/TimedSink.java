import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Stores nothing, and tells when the last row of each window came out. */
final class TimedSink implements Sink<WindowCount> {
    private final int query;

    TimedSink(int query) {
        this.query = query;
    }

    @Override
    public SinkWriter<WindowCount> createWriter(WriterInitContext context) {
        return new Writer();
    }

    private final class Writer implements SinkWriter<WindowCount> {
        private static final long NONE = Long.MIN_VALUE;

        private long endMillis = NONE;
        private int rows;
        private long views;
        private long weighted; // by campaign, so that views in a wrong one are noticed

        @Override
        public void write(WindowCount row, Context context) {
            if (row.endMillis != endMillis) {
                complete();
                endMillis = row.endMillis;
            }
            rows++;
            views += row.views;
            weighted += row.views * (row.campaign + 1);
        }

        /** A window's rows come before the watermark that let them out. */
        @Override
        public void writeWatermark(Watermark watermark) {
            complete();
        }

        @Override
        public void flush(boolean endOfInput) {
            // Nothing is kept back but the line about a window that is still coming out.
        }

        @Override
        public void close() {}

        private void complete() {
            if (endMillis == NONE) {
                return;
            }
            Run.tell(
                    "{\"query\": " + query
                            + ", \"end_ms\": " + endMillis
                            + ", \"out_ms\": " + System.currentTimeMillis()
                            + ", \"rows\": " + rows
                            + ", \"views\": " + views
                            + ", \"weighted\": " + weighted
                            + "}");
            endMillis = NONE;
            rows = 0;
            views = 0;
            weighted = 0;
        }
    }
}
