"""What was acknowledged is on disk, and a partition key, a resource id and a stored item have one form only.

The database file with its tables, what exists in it, and how it is spelled there. Nothing here knows of requests.
"""
