"""What operators do to containers as a whole: inspect, and list events. Each can be done twice."""
