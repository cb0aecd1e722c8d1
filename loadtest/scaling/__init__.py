"""The sweeps of `make bench BENCH=scaling`: each varies one thing, and says what it does to the filter's cost."""
