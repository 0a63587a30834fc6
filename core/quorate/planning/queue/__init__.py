"""Which migrations run: which start next, which are kept, when failed ones are tried again."""
