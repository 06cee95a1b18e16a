"""The parts that tests share: processes under test, and waiting for a condition."""
