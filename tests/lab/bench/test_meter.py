import psutil

from slackwater_lab.bench.meter import Sample, TreeMeter, sample_tree, usage_of
from slackwater_lab.workloads.due import Span

MB = 1024 * 1024


def test_processor_time_is_a_share_of_all_cores_within_the_span() -> None:
    samples = [
        Sample(second * 1_000.0, cpu_s=second * 0.5, resident_bytes=MB) for second in range(9)
    ]
    assert usage_of(samples, Span(2_500, 6_500), cores=2)["cpu_share"] == 0.25


def test_the_peak_of_memory_is_that_of_the_span_alone() -> None:
    sizes = [900, 100, 300, 200, 800]
    samples = [
        Sample(i * 1_000.0, cpu_s=0.0, resident_bytes=size * MB) for i, size in enumerate(sizes)
    ]
    assert usage_of(samples, Span(1_000, 4_000), cores=2)["memory_peak_mb"] == 300.0


def test_a_span_that_was_not_sampled_gives_no_figures() -> None:
    assert usage_of([], Span(0, 1_000), cores=2) == {"cpu_share": None, "memory_peak_mb": None}


def test_samples_of_a_span_are_told_as_moment_seconds_and_megabytes() -> None:
    meter = TreeMeter(psutil.Process().pid)
    meter._samples = [Sample(i * 500.0, cpu_s=i / 3, resident_bytes=i * MB) for i in range(5)]
    assert meter.samples(Span(500, 1_500)) == [[500, 0.33, 1.0], [1_000, 0.67, 2.0]]


def test_a_process_that_has_worked_shows_what_it_used() -> None:
    sample = sample_tree(psutil.Process())
    assert sample.cpu_s > 0
    assert sample.resident_bytes > MB
