"""What docs/performance.md is made with."""
