"""What operators do to containers as a whole: inspect and erase. Each can be done twice."""
