"""The commands of one type of value: strings and numbers in them, hashes, lists, sets."""
