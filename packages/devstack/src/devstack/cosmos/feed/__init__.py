"""The change feed shows each item at its last write, in the order of transactions, none of them split by a page."""
