"""The commands of `quorate`, except `quorate dev`."""
