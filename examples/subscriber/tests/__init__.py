"""The subscriber and its publisher over real sockets."""
