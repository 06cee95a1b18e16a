"""What the lists of every store share: where a page ends is told in a token that this list alone takes."""
