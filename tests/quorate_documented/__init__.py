"""Documents whose commands are run, in the order in which a reader types them."""
