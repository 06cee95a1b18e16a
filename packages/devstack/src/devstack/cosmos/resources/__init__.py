"""What owns items is checked before it is stored: databases, containers, their throughput, partitions and scripts.

Physical partitions cover all keys, before and after a split; a *scope*, the part of a container that a read names,
covers whole partitions or is refused.
"""
