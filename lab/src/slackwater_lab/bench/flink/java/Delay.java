import java.io.Serializable;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** Turns a uniform number in [0, 1) into a delay, as slackwater.progress.distributions does. */
interface Delay extends Serializable {
    double millis(double u);

    static Delay of(JsonNode spec) {
        switch (spec.get("kind").asText()) {
            case "line":
                return line(spec.get("low_ms").asDouble(), spec.get("span_ms").asDouble());
            case "alias":
                return alias(doubles(spec.get("chances")), doubles(spec.get("others")));
            case "quantiles":
                return quantiles(doubles(spec.get("intercepts")), doubles(spec.get("slopes")));
            default:
                throw new IllegalArgumentException("unknown delay: " + spec.get("kind"));
        }
    }

    private static Delay line(double low, double span) {
        return u -> low + u * span;
    }

    /** Draws whole milliseconds from 1 on, by Walker's alias method. */
    private static Delay alias(double[] chances, double[] others) {
        return u -> {
            double place = u * chances.length;
            int own = (int) place;
            return (place - own < chances[own] ? own : others[own]) + 1.0;
        };
    }

    /** Draws by straight lines between quantiles: finer ones for the last 64th. */
    private static Delay quantiles(double[] intercepts, double[] slopes) {
        final double bins = 512;
        final double body = 1.0 - 1.0 / 64;
        return u -> {
            double place = u < body ? u * bins : body * bins + (u - body) * 64 * bins;
            int line = (int) place;
            return intercepts[line] + u * slopes[line];
        };
    }

    private static double[] doubles(JsonNode array) {
        double[] values = new double[array.size()];
        for (int i = 0; i < values.length; i++) {
            values[i] = array.get(i).asDouble();
        }
        return values;
    }
}
