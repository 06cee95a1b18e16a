"""What a service promises to whoever reads its events; and whether a release keeps what the last one promised."""
