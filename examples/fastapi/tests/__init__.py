"""The program over real sockets."""
