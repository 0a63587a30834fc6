"""The steps by which one row gets to its target; a preview of all of them."""
