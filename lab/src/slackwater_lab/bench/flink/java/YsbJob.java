import java.io.File;
import java.time.Duration;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamUtils;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * The Yahoo Streaming Benchmark on Flink, at its best: all queries in one job of an embedded
 * cluster, each of them one chain of operators in one task. Runs until its input is closed.
 */
public final class YsbJob {
    private static final int ADS_PER_CAMPAIGN = 10;
    private static final int ADS = 1_000;
    private static final long USERS = 1_048_575;

    public static void main(String[] arguments) throws Exception {
        JsonNode spec = new ObjectMapper().readTree(new File(arguments[0]));
        Run.prepare(spec.get("queries").size(), spec.get("tick_ms").asDouble());
        StreamExecutionEnvironment env = environment(spec);
        for (int query = 0; query < spec.get("queries").size(); query++) {
            addQuery(env, spec, query);
        }
        JobClient job = env.executeAsync("ysb");
        Thread watching = new Thread(() -> watch(job), "watching");
        watching.setDaemon(true);
        watching.start();
        Run.tell("{\"start_ms\": " + Run.start() + "}");
        while (System.in.read() >= 0) {
            // Only its end means something.
        }
        job.cancel().get();
        System.exit(0);
    }

    private static StreamExecutionEnvironment environment(JsonNode spec) {
        Configuration settings = new Configuration();
        spec.get("settings")
                .properties()
                .forEach(it -> settings.setString(it.getKey(), it.getValue().asText()));
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        env.getConfig().enableObjectReuse();
        env.getConfig().setAutoWatermarkInterval(spec.get("watermark_interval_ms").asLong());
        if (spec.hasNonNull("checkpoint_ms")) {
            env.enableCheckpointing(spec.get("checkpoint_ms").asLong());
        }
        return env;
    }

    private static void addQuery(StreamExecutionEnvironment env, JsonNode spec, int query) {
        JsonNode its = spec.get("queries").get(query);
        int variant = its.get("variant").asInt();
        AdStream stream =
                new AdStream(
                        its.get("salt").asLong(),
                        its.get("start_after_ms").asLong(),
                        spec.get("gap_us").asDouble(),
                        Delay.of(spec.get("delay")));
        int[] campaigns = campaignOfEachAd();
        TypeInformation<AdEvent> events = TypeInformation.of(AdEvent.class);
        DataStream<AdEvent> views =
                env.fromSource(
                                new AdSource(stream),
                                WatermarkStrategy.forBoundedOutOfOrderness(
                                        Duration.ofMillis(spec.get("lag_ms").asLong())),
                                "events-" + query,
                                events)
                        .filter(event -> event.kind == AdEvent.VIEW && passes(event, variant))
                        .map(
                                event -> {
                                    event.campaign = campaigns[event.ad];
                                    return event;
                                })
                        .returns(events);
        OutputTag<AdEvent> late = new OutputTag<>("late", events);
        // One task holds all keys of a query, so no exchange is needed between it and its windows.
        SingleOutputStreamOperator<WindowCount> counts =
                DataStreamUtils.reinterpretAsKeyedStream(views, event -> event.campaign, Types.INT)
                        .window(
                                TumblingEventTimeWindows.of(
                                        Duration.ofMillis(spec.get("window_ms").asLong()),
                                        Duration.ofMillis(its.get("offset_ms").asLong())))
                        .sideOutputLateData(late)
                        .aggregate(
                                new Count(),
                                new Label(),
                                PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO,
                                PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO,
                                TypeInformation.of(WindowCount.class));
        counts.sinkTo(new TimedSink(query));
        counts.getSideOutput(late).filter(event -> countLate()).sinkTo(new DiscardingSink<>());
    }

    /** Counts an event that came too late for its window, and lets it go. */
    private static boolean countLate() {
        Run.LATE.increment();
        return false;
    }

    private static int[] campaignOfEachAd() {
        int[] campaigns = new int[ADS];
        for (int ad = 0; ad < ADS; ad++) {
            campaigns[ad] = ad / ADS_PER_CAMPAIGN;
        }
        return campaigns;
    }

    /** The conditions by which templates differ, as slackwater_lab.workloads.ysb writes them. */
    private static boolean passes(AdEvent event, int variant) {
        if (variant == 0) {
            return true;
        }
        long more = AdStream.hash(event.bits);
        long user = more & USERS;
        long page = (more >> 20) & USERS;
        switch (variant % 3) {
            case 0:
                return user != variant;
            case 1:
                return page != variant;
            default:
                return user != page + variant;
        }
    }

    /** Tells once a second how many events were read and how many were late, and ends a run whose job has failed. */
    private static void watch(JobClient job) {
        try {
            while (true) {
                Run.tell(
                        "{\"events\": " + Run.EVENTS.sum()
                                + ", \"late\": " + Run.LATE.sum()
                                + ", \"at_ms\": " + System.currentTimeMillis() + "}");
                Thread.sleep(1_000);
                if (job.getJobStatus().get() == JobStatus.FAILED) {
                    job.getJobExecutionResult().get();
                }
            }
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    /** Counts in place: with the heap's state backend nothing is copied. */
    private static final class Count implements AggregateFunction<AdEvent, long[], long[]> {
        @Override
        public long[] createAccumulator() {
            return new long[1];
        }

        @Override
        public long[] add(AdEvent event, long[] count) {
            count[0]++;
            return count;
        }

        @Override
        public long[] getResult(long[] count) {
            return count;
        }

        @Override
        public long[] merge(long[] one, long[] other) {
            one[0] += other[0];
            return one;
        }
    }

    private static final class Label
            extends ProcessWindowFunction<long[], WindowCount, Integer, TimeWindow> {
        @Override
        public void process(
                Integer campaign,
                Context context,
                Iterable<long[]> counts,
                Collector<WindowCount> out) {
            long views = counts.iterator().next()[0];
            out.collect(new WindowCount(context.window().getEnd(), campaign, views));
        }
    }
}
