"""The torture test: the whole system under faults, judged only by what was asked and what arrived."""
