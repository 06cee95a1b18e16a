"""The torture test: the whole system under faults, judged only by the requests and the messages that arrived."""
