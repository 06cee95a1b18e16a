"""What the write half, the relay half and the subscriber's half have in common. It knows nothing of ours."""
