/** One advertisement event: only the fields that queries read, as Spark too makes no others. */
public final class AdEvent {
    public static final int VIEW = 0;

    public long bits; // user and page are drawn from these, by the variants that ask for them
    public int kind;
    public int ad;
    public int campaign;
}
