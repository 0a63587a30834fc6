"""Parts of the data source `quorate`: its options, its writer, its stream of updates."""
