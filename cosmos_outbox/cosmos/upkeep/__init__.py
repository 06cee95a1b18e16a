"""What operators do to containers as a whole: inspect, erase, stop the expiry. Each can be done twice."""
