"""What a user types at the top of the checkout does what it promises."""
