"""A deployment is judged by what its services say of themselves: what could not be looked at never counts as right."""
