"""The operator's calls: the same for every service, and each needs the admin key, but for health and for the page."""
