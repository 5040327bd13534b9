import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource.NumberSequenceSplit;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Emits the events of one query as they arrive; its one split is the numbers still to come. */
final class AdSource
        implements Source<AdEvent, NumberSequenceSplit, Collection<NumberSequenceSplit>> {
    private final NumberSequenceSource numbers = new NumberSequenceSource(0, Long.MAX_VALUE - 1);
    private final AdStream stream;

    AdSource(AdStream stream) {
        this.stream = stream;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<AdEvent, NumberSequenceSplit> createReader(SourceReaderContext context) {
        return new Reader(context);
    }

    @Override
    public SplitEnumerator<NumberSequenceSplit, Collection<NumberSequenceSplit>> createEnumerator(
            SplitEnumeratorContext<NumberSequenceSplit> context) {
        return numbers.createEnumerator(context);
    }

    @Override
    public SplitEnumerator<NumberSequenceSplit, Collection<NumberSequenceSplit>> restoreEnumerator(
            SplitEnumeratorContext<NumberSequenceSplit> context,
            Collection<NumberSequenceSplit> checkpoint) {
        return numbers.restoreEnumerator(context, checkpoint);
    }

    @Override
    public SimpleVersionedSerializer<NumberSequenceSplit> getSplitSerializer() {
        return numbers.getSplitSerializer();
    }

    @Override
    public SimpleVersionedSerializer<Collection<NumberSequenceSplit>>
            getEnumeratorCheckpointSerializer() {
        return numbers.getEnumeratorCheckpointSerializer();
    }

    private final class Reader implements SourceReader<AdEvent, NumberSequenceSplit> {
        /** A poll emits that many at most, so that timers and barriers get their turn. */
        private static final int BATCH = 256;

        private final SourceReaderContext context;
        private final AdEvent event = new AdEvent(); // one for all: object reuse is on
        private NumberSequenceSplit split;
        private long next;

        Reader(SourceReaderContext context) {
            this.context = context;
        }

        @Override
        public void start() {
            context.sendSplitRequest();
        }

        @Override
        public void addSplits(List<NumberSequenceSplit> splits) {
            split = splits.get(0);
            next = split.from();
            Run.readerIsReady();
        }

        @Override
        public InputStatus pollNext(ReaderOutput<AdEvent> output) {
            long startMillis = Run.startMillis();
            if (split == null || startMillis == Run.NOT_YET) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            // Records can be read from the first whole millisecond after they arrived.
            long passedMicros = (System.currentTimeMillis() - startMillis) * 1_000;
            long first = next;
            long end = next + BATCH;
            while (next < end && stream.arrivalMicros(next) <= passedMicros) {
                long eventMillis = stream.fill(event, next, startMillis);
                output.collect(event, eventMillis);
                next++;
            }
            Run.EVENTS.add(next - first);
            return next == end ? InputStatus.MORE_AVAILABLE : InputStatus.NOTHING_AVAILABLE;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return Run.nextTick();
        }

        @Override
        public List<NumberSequenceSplit> snapshotState(long checkpointId) {
            return split == null
                    ? List.of()
                    : List.of(new NumberSequenceSplit(split.splitId(), next, split.to()));
        }

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public void close() {}
    }
}
