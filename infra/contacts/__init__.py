"""What contacts look like outside: in HTTP, and in documents that were stored before an event named its aggregate."""
