"""devstack/servicebus through the real SDK over a real socket, by raw frames, and against models."""
