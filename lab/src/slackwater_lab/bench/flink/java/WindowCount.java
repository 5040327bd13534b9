/** How often one campaign was viewed in one window. */
public final class WindowCount {
    public long endMillis;
    public int campaign;
    public long views;

    public WindowCount() {}

    WindowCount(long endMillis, int campaign, long views) {
        this.endMillis = endMillis;
        this.campaign = campaign;
        this.views = views;
    }
}
