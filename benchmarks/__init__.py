"""The command that prints the README's figures: `python -m benchmarks`."""
