"""Small services that a reader copies. The tests run each end to end; none of them is deployed."""
