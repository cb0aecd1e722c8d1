"""Makes docs/performance.md."""
