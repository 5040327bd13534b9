"""The laboratory beside Slackwater: workloads, benchmarks, replays, injectors, reports."""
