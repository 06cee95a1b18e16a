"""What is measured and traced names no person; it is exported where a setting says so, and costs little elsewhere."""
