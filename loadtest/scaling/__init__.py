"""The sweeps of `make bench BENCH=scaling`: each varies one thing and reports the filter's cost."""
